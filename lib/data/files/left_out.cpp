#include "data/files/left_out.h"

#include "base/units.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace trainopt {
namespace {

std::string_view base_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

}  // namespace

bool is_apple_double(std::string_view name) { return base_name(name).starts_with("._"); }

std::string ending_of(std::string_view name) {
  const std::string_view file = base_name(name);
  const size_t dot = file.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return "";
  std::string ending(file.substr(dot));
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending;
}

void LeftOut::add(std::string_view kind, std::string_view name, std::string_view remark) {
  std::string shown(name);
  std::replace_if(
      shown.begin(), shown.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
  add(std::string(kind), {std::move(shown), std::string(remark), 1});
}

void LeftOut::add_file(std::string_view name) {
  if (is_apple_double(name)) return add("macOS ._ file", name);
  const std::string ending = ending_of(name);
  if (ending.empty()) return add("extensionless file", name);
  // Numbers and other texts behind a dot would each be a kind.
  constexpr size_t kLongest = 12;
  const auto of_kind = [&](auto is) { return std::any_of(ending.begin(), ending.end(), is); };
  const bool is_word =
      ending.size() <= kLongest && of_kind([](unsigned char c) { return std::isalpha(c) != 0; }) &&
      std::count_if(ending.begin(), ending.end(), [](unsigned char c) { return std::isdigit(c) != 0; }) <= 2;
  add(is_word ? ending + " file" : "other file", name);
}

void LeftOut::add(const LeftOut& others) {
  for (const auto& [kind, group] : others.groups_) add(kind, group);
}

void LeftOut::add(const std::string& kind, const Group& group) {
  Group& known = groups_[kind];
  if (known.count == 0 || group.first < known.first) known.first = group.first;
  known.remark = group.remark;
  known.count += group.count;
}

std::vector<LeftOut::Kind> LeftOut::by_count() const {
  std::vector<Kind> sorted(groups_.begin(), groups_.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Kind& a, const Kind& b) { return a.second.count > b.second.count; });
  return sorted;
}

std::string LeftOut::text() const {
  constexpr size_t kMostKinds = 8;
  std::vector<std::string> parts;
  int64_t others = 0;
  for (const auto& [kind, group] : by_count()) {
    if (parts.size() < kMostKinds)
      parts.push_back(fmt::format("{} ({}{}{}{})", counted(group.count, kind), group.first,
                                  group.count > 1 ? ", ..." : "", group.remark.empty() ? "" : ": ", group.remark));
    else
      others += group.count;
  }
  if (others > 0) parts.push_back(counted(others, "file") + " of other kinds");
  return fmt::format("{}", fmt::join(parts, ", "));
}

Json LeftOut::json() const {
  Json all = Json::array();
  for (const auto& [kind, group] : by_count())
    all.push_back({{"kind", kind}, {"count", group.count}, {"first", group.first}, {"why", group.remark}});
  return all;
}

LeftOut left_out_from(const Json& json) {
  LeftOut left_out;
  for (const Json& each : json)
    left_out.add(each.at("kind"), LeftOut::Group{each.at("first"), each.at("why"), each.at("count")});
  return left_out;
}

}  // namespace trainopt
