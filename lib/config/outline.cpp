#include "config/outline.h"

#include <algorithm>

namespace trainopt {
namespace {

/// Index of the alternative called `name`; nullopt if there is none.
std::optional<size_t> alternative_named(const Option& variant, std::string_view name) {
  for (size_t i = 0; i < variant.alternatives.size(); ++i)
    if (variant.alternatives[i].name == name) return i;
  return std::nullopt;
}

}  // namespace

std::vector<std::string_view> alternative_names(const Option& variant) {
  std::vector<std::string_view> names;
  for (const auto& alternative : variant.alternatives) names.push_back(alternative.name);
  return names;
}

std::vector<const Option*> options_of_map(const Outline& outline, const Value& map) {
  std::vector<const Option*> options;
  for (const Option& option : outline) {
    options.push_back(&option);
    if (option.kind != Option::Kind::variant) continue;
    const Value* name = map.find(option.name);
    const auto named = name && name->is_scalar() ? alternative_named(option, name->text) : std::nullopt;
    for (const Option& own : option.alternatives[named.value_or(option.current())].options) options.push_back(&own);
  }
  return options;
}

const Option* find_option(const std::vector<const Option*>& options, std::string_view key) {
  for (const Option* option : options)
    if (option->name == key) return option;
  for (const Option* option : options)
    if (std::find(option->aliases.begin(), option->aliases.end(), key) != option->aliases.end()) return option;
  return nullptr;
}

}  // namespace trainopt
