// A page from folders: the headline first, then the sections.
#pragma once

#include "report/page.h"
#include "report/sources.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt::report {

struct Context {
  Json default_recipe;               ///< every key with its default
  std::string written_by;            ///< "trainopt 0.1.0 (83b661f8d17b)"
  std::string written_at;            ///< "2026-11-24 09:20:02"
  std::optional<int> reload_s = {};  ///< the page reloads itself after these seconds
  bool running = false;              ///< a process still writes to one of the folders
};

Page compose(const std::vector<Source>& sources, const Context& context);

}  // namespace trainopt::report
