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
  add({std::string(kind), std::string(name), std::string(remark), 1});
}

void LeftOut::add_file(std::string_view name) {
  if (is_apple_double(name)) return add("macOS ._ file", name);
  const std::string ending = ending_of(name);
  add(ending.empty() ? "extensionless file" : ending + " file", name);
}

void LeftOut::add(const LeftOut& others) {
  for (const Group& group : others.groups_) add(group);
}

void LeftOut::add(const Group& group) {
  const auto known =
      std::find_if(groups_.begin(), groups_.end(), [&](const Group& each) { return each.kind == group.kind; });
  if (known == groups_.end())
    groups_.push_back(group);
  else
    known->count += group.count;
}

std::vector<LeftOut::Group> LeftOut::by_count() const {
  std::vector<Group> sorted = groups_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Group& a, const Group& b) { return a.count > b.count; });
  return sorted;
}

std::string LeftOut::text() const {
  constexpr size_t kMostKinds = 8;
  std::vector<std::string> parts;
  int64_t others = 0;
  for (const Group& group : by_count()) {
    if (parts.size() == kMostKinds) {
      others += group.count;
      continue;
    }
    parts.push_back(fmt::format("{} ({}{}{}{})", counted(group.count, group.kind), group.first,
                                group.count > 1 ? ", ..." : "", group.remark.empty() ? "" : ": ", group.remark));
  }
  if (others > 0) parts.push_back(counted(others, "file") + " of other kinds");
  return fmt::format("{}", fmt::join(parts, ", "));
}

Json LeftOut::json() const {
  Json all = Json::array();
  for (const Group& group : by_count())
    all.push_back({{"kind", group.kind}, {"count", group.count}, {"first", group.first}, {"why", group.remark}});
  return all;
}

LeftOut left_out_from(const Json& json) {
  LeftOut left_out;
  for (const Json& each : json)
    left_out.add(LeftOut::Group{each.at("kind"), each.at("first"), each.at("why"), each.at("count")});
  return left_out;
}

}  // namespace trainopt
