#include "config/merge.h"

#include <algorithm>
#include <unordered_map>

namespace trainopt {
namespace {

/// The options that do not survive when the value of `named` becomes `new_name`: all options of a variant's
/// alternatives, and options that are only for other values.
std::vector<const Option*> options_to_drop(const Option& named, const std::string& new_name, const Outline& outline) {
  std::vector<const Option*> options;
  for (const auto& alternative : named.alternatives)
    for (const Option& option : alternative.options) options.push_back(&option);
  for (const Option& option : outline) {
    const auto& [key, values] = option.only_for;
    if (key == named.name && std::find(values.begin(), values.end(), new_name) == values.end())
      options.push_back(&option);
  }
  return options;
}

/// If `from` changes the value of `named`, removes from `into` the options that belong to the old value.
void drop_options_of_old_value(Value& into, const Value& from, const Option& named, const Outline& outline,
                               const std::string& section, std::vector<std::string>& notes) {
  const bool is_variant = named.kind == Option::Kind::variant;
  const Value* after = from.find(named.name);
  if (!after || !(is_variant || named.kind == Option::Kind::value)) return;
  const std::string usual = is_variant ? named.alternatives[named.current()].name : named.write().text;
  const auto name_in = [&](const Value* value) { return value && value->is_scalar() ? value->text : usual; };
  const std::string old_name = name_in(into.find(named.name)), new_name = name_in(after);
  if (old_name == new_name) return;
  std::string dropped;
  for (const Option* option : options_to_drop(named, new_name, outline))
    if (into.find(option->name)) {
      dropped += (dropped.empty() ? "" : ", ") + join_path(section, option->name);
      into.erase(option->name);
    }
  if (!dropped.empty())
    notes.push_back(fmt::format("{}: {} replaces {}, so earlier options of {} are dropped: {}", to_text(after->mark),
                                display_text(new_name), display_text(old_name), display_text(old_name), dropped));
}

void merge_option(Value& into, const Value& from, const Option& option, const std::string& path, const Reading& reading,
                  std::vector<std::string>& notes) {
  const bool has_map = option.kind == Option::Kind::section || option.kind == Option::Kind::toggle;
  if (has_map && from.is_map()) {
    if (!into.is_map()) into = empty_map();
    into.mark = from.mark;
    merge_map(into, from, option.options, path, reading, notes);
  } else if (option.kind == Option::Kind::section && !from.is_null()) {
    reading.problems.push_back(problem_in(
        from.mark, path, "must be a map of options: " + display_text(from) + value_lead(path, from, reading.root)));
  } else {
    into = from;
  }
}

/// If the section at `index` of a file's map is empty, and the key after it is an option of that section as well as of
/// the map: that key, which was probably not indented. Otherwise empty.
std::string key_left_outside(const Value& map, size_t index, const Option& section,
                             const std::vector<const Option*>& siblings) {
  const bool is_file = map.keys[index].mark.line > 0;
  const bool is_empty = map.items[index].is_null() && map.items[index].text.empty();  // null that is written has a text
  if (section.kind != Option::Kind::section || !is_file || !is_empty || index + 1 == map.keys.size()) return "";
  const std::string& next = map.keys[index + 1].name;
  const bool has_it = find_option(options_of_map(section.options, empty_map()), next) != nullptr;
  return has_it && find_option(siblings, next) != nullptr ? next : "";
}

}  // namespace

void merge_map(Value& into, const Value& from, const Outline& outline, const std::string& section,
               const Reading& reading, std::vector<std::string>& notes) {
  for (const Option& option : outline) {
    drop_options_of_old_value(into, from, option, outline, section, notes);
    const Value* name = option.kind == Option::Kind::variant ? from.find(option.name) : nullptr;
    if (name) into.find_or_add({option.name, name->mark}) = *name;
  }

  auto siblings = options_of_map(outline, into);
  const size_t of_this_variant = siblings.size();
  for (const Option& option : outline)  // read_map() reports options of other alternatives
    for (const auto& alternative : option.alternatives)
      for (const Option& own : alternative.options) siblings.push_back(&own);
  const std::vector<const Option*> shown_options(siblings.begin(),
                                                 siblings.begin() + static_cast<std::ptrdiff_t>(of_this_variant));

  std::unordered_map<std::string, const Value::Key*> first_keys;
  for (size_t i = 0; i < from.keys.size(); ++i) {
    const Value::Key& key = from.keys[i];
    const Option* option = find_option(siblings, key.name);
    if (!option) {
      report_unknown(key, from.items[i], section, shown_options, reading);
      continue;
    }
    const std::string path = join_path(section, option->name);
    if (const std::string next = key_left_outside(from, i, *option, siblings); !next.empty())
      reading.problems.push_back(problem_in(
          key.mark, path,
          fmt::format("is empty, and {0}, which {1} has too, follows at the same indentation; indent {0}, or "
                      "remove {1}",
                      next, path)));
    const auto [first, is_new] = first_keys.emplace(option->name, &key);
    if (!is_new) {
      reading.problems.push_back(problem_in(key.mark, path,
                                            fmt::format("given twice: '{}' ({}) and '{}' are the same option",
                                                        first->second->name, to_text(first->second->mark), key.name)));
      continue;
    }
    merge_option(into.find_or_add({option->name, key.mark}), from.items[i], *option, path, reading, notes);
  }
}

void merge_plain(Value& into, const Value& from) {
  for (size_t i = 0; i < from.keys.size(); ++i) {
    Value& target = into.find_or_add(from.keys[i]);
    if (target.is_map() && from.items[i].is_map()) {
      target.mark = from.items[i].mark;
      merge_plain(target, from.items[i]);
    } else {
      target = from.items[i];
    }
  }
}

}  // namespace trainopt
