// Text that people write in recipes and that YAML does not read as they mean it: variables, a home folder, spaces that
// only look like spaces, tabs.
#pragma once

#include "config/problems.h"
#include "config/value.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// Replaces the ~ of a "~/" at the beginning of a value by `home`; an empty one is a problem. Values with a variable,
/// such as ${LR}, and names or unquoted values with a character that only looks like a space become problems, and are
/// taken out of `map`, so that nothing else is said about them.
void make_plain(Value& map, const std::string& home, std::vector<Problem>& problems);

/// What in the text up to and including `line` (from 1) misleads a YAML parser that stops there: a variable in braces,
/// a tab in the indentation, a space that is none. nullopt: nothing of that kind.
struct Misleading {
  int line, column;  ///< from 1; the column counts characters
  std::string message;
};
std::optional<Misleading> misleading_text(std::string_view text, int line);

}  // namespace trainopt
