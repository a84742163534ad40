// The page as one file: style, script and content, with nothing to load.
#pragma once

#include "report/html.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt::report {

struct Section {
  std::string id;     ///< unique in the page: "loss"
  std::string title;  ///< "Loss and evaluation"
  Html content;
};

struct Page {
  std::string title;              ///< "resnet18: 1,243 samples/s"
  Html headline;                  ///< the first screen
  std::vector<Section> sections;  ///< in order; a list of links to them stays in sight
  std::string footer;             ///< program version and when it was written
  std::optional<int>
      reload_s;  ///< while a run goes on: the page reloads itself after these seconds, and keeps its place
};
/// A complete HTML document in UTF-8.
std::string draw(const Page& page);

}  // namespace trainopt::report
