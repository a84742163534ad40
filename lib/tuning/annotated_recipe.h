// A recipe's text with a comment at each changed line.
#pragma once

#include <map>
#include <string>

namespace trainopt {

/// `yaml`: a resolved recipe (recipe_yaml()). `comments`: by key, "data.num_workers"; one line each.
std::string annotated(const std::string& yaml, const std::map<std::string, std::string>& comments);

}  // namespace trainopt
