#include "report/recipe_differences.h"

#include "report/number_text.h"

namespace trainopt::report {
namespace {

bool is_place(std::string_view key) { return key == "run_dir" || key == "output_dir"; }

void compare_maps(const Json& left, const Json& right, const std::string& prefix,
                  std::vector<RecipeDifference>& differences) {
  const auto text = [](const Json* value) { return value ? value_text(*value) : std::string(kMissing); };
  const auto find = [](const Json& map, const std::string& key) {
    const auto found = map.find(key);
    return found == map.end() ? nullptr : &*found;
  };
  const auto compare = [&](const std::string& key, const Json* one, const Json* other) {
    if (one && other && *one == *other) return;
    if (one && other && one->is_object() && other->is_object())
      compare_maps(*one, *other, prefix + key + ".", differences);
    else if (!(prefix.empty() && is_place(key)))
      differences.push_back({prefix + key, text(one), text(other)});
  };
  for (const auto& [key, value] : right.items()) compare(key, find(left, key), &value);
  for (const auto& [key, value] : left.items())
    if (!find(right, key)) compare(key, &value, nullptr);
}

}  // namespace

std::vector<RecipeDifference> recipe_differences(const Json& left, const Json& right) {
  std::vector<RecipeDifference> differences;
  if (left.is_object() && right.is_object()) compare_maps(left, right, "", differences);
  return differences;
}

Html draw(const std::vector<RecipeDifference>& differences, std::string_view left, std::string_view right) {
  if (differences.empty()) return element("p", {{"class", "note"}}, "No difference.");
  Table table{.caption = "Differences of the recipes",
              .columns = {{"change"}, {"key"}, {std::string(left)}, {std::string(right)}},
              .rows = {}};
  for (const auto& one : differences) {
    const char* change = one.left == kMissing ? "added" : one.right == kMissing ? "removed" : "changed";
    table.rows.push_back({element("span", {{"class", std::string("change is-") + change}}, change),
                          element("code", escape(one.key)), element("code", escape(one.left)),
                          element("code", escape(one.right))});
  }
  return element("div", {{"class", "diff"}}, draw(table));
}

}  // namespace trainopt::report
