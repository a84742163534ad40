// How two recipes differ.
#pragma once

#include "base/json.h"
#include "report/html.h"

#include <string>
#include <vector>

namespace trainopt::report {

struct RecipeDifference {
  std::string key;          ///< "data.batch_size"
  std::string left, right;  ///< as a recipe writes them; kMissing if only the other has it
};

/// In the order of `right`, then what only `left` has. A map is compared key by key where both have one. run_dir and
/// output_dir are left out: they say where files go.
std::vector<RecipeDifference> recipe_differences(const Json& left, const Json& right);

/// A table with these titles; a sentence if there is no difference.
Html draw(const std::vector<RecipeDifference>& differences, std::string_view left, std::string_view right);

}  // namespace trainopt::report
