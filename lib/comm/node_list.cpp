#include "comm/node_list.h"

#include "base/error.h"
#include "comm/launch_variables.h"

namespace trainopt {
namespace {

// No cluster has more nodes. Limits memory use for a damaged list.
constexpr size_t kMaxNodes = 100000;

[[noreturn]] void refuse(const std::string& text) {
  throw UserError(
      fmt::format("this is not a valid Slurm list; set MASTER_ADDR and MASTER_PORT to do without it: {}", text));
}

/// Splits at commas outside brackets.
std::vector<std::string> split(const std::string& text, const std::string& list) {
  std::vector<std::string> parts(1);
  bool inside = false;
  for (const char c : text) {
    if (c == (inside ? '[' : ']')) refuse(list);
    if (c == '[' || c == ']') inside = c == '[';
    if (c == ',' && !inside)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  if (inside) refuse(list);
  for (const auto& part : parts)
    if (part.empty()) refuse(list);
  return parts;
}

/// "003-005" → 003 004 005: padded to the width of the first number.
void add_range(const std::string& range, const std::string& list, std::vector<std::string>& numbers) {
  const size_t dash = range.find('-');
  const std::string first = range.substr(0, dash);
  const auto from = parse_count(first),
             to = dash == std::string::npos ? from : parse_count(std::string_view(range).substr(dash + 1));
  if (!from || !to || *to < *from || static_cast<size_t>(*to - *from) >= kMaxNodes) refuse(list);
  for (int64_t number = *from; number <= *to; ++number) numbers.push_back(fmt::format("{:0{}}", number, first.size()));
}

/// "rack[0-1]node[1-2]-ib": combines the text before the first bracket, each number in the bracket, and each expansion
/// of the rest.
std::vector<std::string> expand_name(const std::string& name, const std::string& list) {
  const size_t open = name.find('[');
  if (open == std::string::npos) return {name};
  const size_t close = name.find(']', open);
  std::vector<std::string> numbers, names;
  for (const auto& range : split(name.substr(open + 1, close - open - 1), list)) add_range(range, list, numbers);
  const auto suffixes = expand_name(name.substr(close + 1), list);
  if (numbers.size() * suffixes.size() > kMaxNodes) refuse(list);
  for (const auto& number : numbers)
    for (const auto& rest : suffixes) names.push_back(name.substr(0, open) + number + rest);
  return names;
}

}  // namespace

std::vector<std::string> expand_node_list(const std::string& text) {
  std::vector<std::string> nodes;
  for (const auto& part : split(text, text)) {
    const auto names = expand_name(part, text);
    nodes.insert(nodes.end(), names.begin(), names.end());
    if (nodes.size() > kMaxNodes) refuse(text);
  }
  return nodes;
}

std::vector<int64_t> expand_task_counts(const std::string& text) {
  std::vector<int64_t> counts;
  for (const auto& part : split(text, text)) {
    const size_t open = part.find("(x");
    const bool repeated = open != std::string::npos;
    if (repeated && part.back() != ')') refuse(text);
    const auto count = parse_count(std::string_view(part).substr(0, open));
    const auto times = repeated ? parse_count(std::string_view(part).substr(open + 2, part.size() - open - 3))
                                : std::optional<int64_t>(1);
    if (!count || !times || counts.size() + static_cast<size_t>(*times) > kMaxNodes) refuse(text);
    counts.insert(counts.end(), static_cast<size_t>(*times), *count);
  }
  return counts;
}

}  // namespace trainopt
