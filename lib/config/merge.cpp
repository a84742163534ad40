#include "config/merge.h"

#include <algorithm>
#include <unordered_map>

namespace trainopt {
namespace {

/// Takes over the variant's name from `from`. If it differs from the name in `into`, removes the options of all
/// alternatives from `into`.
void merge_variant_name(Value& into, const Value& from, const Option& variant, const std::string& section,
                        std::vector<std::string>& notes) {
  const Value* after = from.find(variant.name);
  if (!after) return;
  const std::string usual = variant.alternatives[variant.current()].name;
  const auto name_in = [&](const Value* value) { return value && value->is_scalar() ? value->text : usual; };
  const std::string old_name = name_in(into.find(variant.name)), new_name = name_in(after);
  if (old_name != new_name) {
    std::string dropped;
    for (const auto& alternative : variant.alternatives)
      for (const Option& option : alternative.options)
        if (into.find(option.name)) {
          dropped += (dropped.empty() ? "" : ", ") + join_path(section, option.name);
          into.erase(option.name);
        }
    if (!dropped.empty())
      notes.push_back(fmt::format("{}: {} replaces {}, so earlier options of {} are dropped: {}", to_text(after->mark),
                                  shown(new_name), shown(old_name), shown(old_name), dropped));
  }
  into.at_or_added({variant.name, after->mark}) = *after;
}

void merge_option(Value& into, const Value& from, const Option& option, const std::string& path, const Reading& reading,
                  std::vector<std::string>& notes) {
  const bool has_map = option.kind == Option::Kind::section || option.kind == Option::Kind::toggle;
  if (has_map && from.is_map()) {
    if (!into.is_map()) into = empty_map();
    into.mark = from.mark;
    merge_map(into, from, option.options, path, reading, notes);
  } else if (option.kind == Option::Kind::section && !from.is_null()) {
    reading.problems.push_back(problem_in(from.mark, path, "must be a map of options: " + shown(from)));
  } else {
    into = from;
  }
}

}  // namespace

void merge_map(Value& into, const Value& from, const Outline& outline, const std::string& section,
               const Reading& reading, std::vector<std::string>& notes) {
  for (const Option& option : outline)
    if (option.kind == Option::Kind::variant) merge_variant_name(into, from, option, section, notes);

  auto here = options_beside(outline, into);
  const size_t of_this_variant = here.size();
  for (const Option& option : outline)  // read_map() reports options of other alternatives
    for (const auto& alternative : option.alternatives)
      for (const Option& own : alternative.options) here.push_back(&own);
  const std::vector<const Option*> shown_options(here.begin(),
                                                 here.begin() + static_cast<std::ptrdiff_t>(of_this_variant));

  std::unordered_map<std::string, const Value::Key*> given;
  for (size_t i = 0; i < from.keys.size(); ++i) {
    const Value::Key& key = from.keys[i];
    const Option* option = find_option(here, key.name);
    if (!option) {
      reading.problems.push_back(unknown_key(key, section, shown_options, reading));
      continue;
    }
    const std::string path = join_path(section, option->name);
    const auto [first, is_new] = given.emplace(option->name, &key);
    if (!is_new) {
      reading.problems.push_back(problem_in(key.mark, path,
                                            fmt::format("given twice: '{}' ({}) and '{}' are the same option",
                                                        first->second->name, to_text(first->second->mark), key.name)));
      continue;
    }
    merge_option(into.at_or_added({option->name, key.mark}), from.items[i], *option, path, reading, notes);
  }
}

void merge_plain(Value& into, const Value& from) {
  for (size_t i = 0; i < from.keys.size(); ++i) {
    Value& place = into.at_or_added(from.keys[i]);
    if (place.is_map() && from.items[i].is_map()) {
      place.mark = from.items[i].mark;
      merge_plain(place, from.items[i]);
    } else {
      place = from.items[i];
    }
  }
}

}  // namespace trainopt
