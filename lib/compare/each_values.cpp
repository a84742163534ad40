#include "compare/each_values.h"

#include "base/error.h"
#include "compare/comparison.h"

#include <optional>

namespace trainopt {
namespace {

std::string without_spaces_around(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? std::string() : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

/// nullopt: a bracket or a quote is not closed.
std::optional<std::vector<std::string>> split_yaml(const std::string& text) {
  std::vector<std::string> values(1);
  int64_t depth = 0;
  char quote = 0;
  bool escaped = false;
  for (const char c : text) {
    if (quote == 0 && depth == 0 && c == ',') {
      values.emplace_back();
      continue;
    }
    values.back() += c;
    if (quote != 0) {
      if (c == quote && !escaped) quote = 0;
      escaped = quote == '"' && c == '\\' && !escaped;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else {
      depth += (c == '[' || c == '{') - (c == ']' || c == '}');
      if (depth < 0) return std::nullopt;
    }
  }
  if (quote != 0 || depth != 0) return std::nullopt;
  for (std::string& value : values) value = without_spaces_around(value);
  return values;
}

}  // namespace

EachValues each_values(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos)
    throw UserError(fmt::format("--each needs a key and its values, such as --each data.num_workers=0,2,4: {}", text));
  auto values = split_yaml(text.substr(equals + 1));
  if (!values) throw UserError(fmt::format("--each has a bracket or quote without its counterpart: {}", text));
  for (const std::string& value : *values)
    if (value.empty()) throw UserError(fmt::format("--each has an empty value; write null for no value: {}", text));
  if (values->size() < 2)
    throw UserError(fmt::format("--each needs at least two values, separated by commas: {}", text));
  if (values->size() > kMostArms)
    throw UserError(
        fmt::format("--each takes at most {} values, so that rounds stay short: {}", kMostArms, values->size()));
  return {.key = text.substr(0, equals), .values = std::move(*values)};
}

}  // namespace trainopt
