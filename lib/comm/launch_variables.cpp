#include "comm/launch_variables.h"

#include "base/error.h"

#include <algorithm>
#include <charconv>

namespace trainopt {

std::optional<int64_t> parse_count(std::string_view text) {
  int64_t number = 0;
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::optional<std::string> LaunchVariables::text(const std::string& name) {
  const auto found = environment_.find(name);
  if (found == environment_.end()) return std::nullopt;
  const std::string shown = name + "=" + found->second;
  if (std::find(read_.begin(), read_.end(), shown) == read_.end()) read_.push_back(shown);
  if (found->second.empty()) refuse(fmt::format("the launcher's {} is empty; give it a value or unset it", name));
  return found->second;
}

std::optional<int64_t> LaunchVariables::number(const std::string& name, int64_t minimum) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const auto number = parse_count(*value);
  if (!number || *number < minimum)
    refuse(fmt::format("the launcher's {} must be a whole number of at least {}", name, minimum));
  return number;
}

void LaunchVariables::refuse(const std::string& sentence) const {
  throw UserError(fmt::format("{}: {}", sentence, fmt::join(read_, " ")));
}

}  // namespace trainopt
