#include "config/load.h"

#include "config/leads.h"
#include "config/merge.h"
#include "config/plain_text.h"
#include "config/suggest.h"
#include "config/tree.h"

#include <algorithm>
#include <map>
#include <set>

namespace trainopt {
namespace {

constexpr std::string_view kUnknownKey = "unknown key";

/// A shell makes several overrides of one with braces: a={b,c} becomes a=b a=c, of which the last counts.
void note_repeated(const std::vector<std::string>& overrides, std::vector<std::string>& notes) {
  std::map<std::string, int64_t> times;
  for (const std::string& text : overrides) {
    const size_t begin = text.starts_with("--") ? 2 : 0;
    ++times[text.substr(begin, text.find('=') - begin)];
  }
  for (const auto& [key, count] : times)
    if (count > 1)
      notes.push_back(
          fmt::format("{} is given {} times on the command line, and the last counts; a value with braces "
                      "needs quotes",
                      key, count));
}

/// Whether an override is "key=null".
bool is_reset(const Value& value) {
  return value.is_map() && value.items.size() == 1 ? is_reset(value.items.front()) : value.is_null();
}

/// Whether an override gives a section one word, which a later override of one of its keys would hide; if so, it is
/// reported.
bool gives_section_a_word(const Value& override, const Outline& outline, const std::string& section,
                          const Reading& reading) {
  if (!override.is_map() || override.keys.size() != 1) return false;
  const Option* option = find_option(options_of_map(outline, override), override.keys.front().name);
  if (option == nullptr) return false;
  const std::string path = join_path(section, option->name);
  const Value& value = override.items.front();
  if (option->kind != Option::Kind::section || !value.is_scalar())
    return gives_section_a_word(value, option->options, path, reading);
  reading.problems.push_back(problem_in(
      value.mark, path, "must be a map of options: " + display_text(value) + value_lead(path, value, reading.root)));
  return true;
}

/// Restores defaults at once: a later override within the same section replaces the null among the overrides, and would
/// otherwise be merged into the files' values. The null remains an override, so problems are reported there.
void reset_now(Value& merged, const Value& null, const Outline& outline, std::vector<std::string>& notes) {
  std::vector<Problem> problems;
  merge_map(merged, null, outline, "", Reading{outline, problems, nullptr}, notes);
}

/// If the problems since `before` show the words of another trainer, says so in one line before them.
void name_tool(const Mark& file, size_t before, std::vector<Problem>& problems) {
  std::vector<std::string> unknown;
  for (size_t i = before; i < problems.size(); ++i)
    if (problems[i].message.starts_with(kUnknownKey)) unknown.push_back(problems[i].key);
  if (const OtherTool* tool = tool_of(unknown))
    problems.insert(
        problems.begin() + static_cast<std::ptrdiff_t>(before),
        problem_in({file.source, 1, 1}, "",
                   fmt::format("this looks like a recipe of {}; recipes here have other keys: start from {}, "
                               "or from trainopt options --yaml",
                               tool->name, tool->start)));
}

}  // namespace

LoadedInto load_into(const Outline& outline, const Sources& sources) {
  LoadedInto loaded;
  Value merged = empty_map();
  const Reading reading{outline, loaded.problems, &loaded.origins};
  const auto parsed = [&](auto&& parse) {
    try {
      parse();
    } catch (const RecipeErrors& errors) {
      loaded.problems.insert(loaded.problems.end(), errors.problems().begin(), errors.problems().end());
      loaded.all_parsed = false;
    }
  };
  for (const auto& file : sources.files)
    parsed([&] {
      Value root = parse_file(file);
      make_plain(root, sources.home, loaded.problems);
      const size_t before = loaded.problems.size();
      merge_map(merged, root, outline, "", reading, loaded.notes);
      name_tool(root.mark, before, loaded.problems);
    });

  Value overrides = empty_map();
  note_repeated(sources.overrides, loaded.notes);
  for (const auto& text : sources.overrides)
    parsed([&] {
      Value value = parse_override(text);
      make_plain(value, sources.home, loaded.problems);
      if (is_reset(value)) reset_now(merged, value, outline, loaded.notes);
      if (!gives_section_a_word(value, outline, "", reading)) merge_plain(overrides, value);
    });
  merge_map(merged, overrides, outline, "", reading, loaded.notes);

  read_map(merged, outline, "", reading);
  loaded.merged = std::move(merged);
  return loaded;
}

void throw_problems(std::vector<Problem> problems, const Sources& sources) {
  if (problems.empty()) return;
  const auto position = [&](const Problem& problem) {  // source, line, column; overrides come after all files
    size_t source = 0;
    while (source < sources.files.size() && !problem.where.starts_with(sources.files[source].string() + ":")) ++source;
    int line = 0, column = 0;
    if (source < sources.files.size())
      std::sscanf(problem.where.c_str() + sources.files[source].string().size(), ":%d:%d", &line, &column);
    return std::tuple(source, line, column);
  };
  std::stable_sort(problems.begin(), problems.end(),
                   [&](const Problem& a, const Problem& b) { return position(a) < position(b); });
  throw RecipeErrors(std::move(problems));
}

void add_problems(std::vector<Problem>& problems, std::vector<Problem> found) {
  std::set<std::string> troubled;
  for (const Problem& problem : problems) troubled.insert(problem.key);
  for (Problem& problem : found)
    if (!troubled.contains(problem.key)) problems.push_back(std::move(problem));
}

namespace {

/// The section that an unknown one is meant to be, if there is one.
const Option* meant_section(const std::vector<std::string>& paths, const Outline& root) {
  const Option* option = paths.size() == 1 ? option_at(root, paths.front()) : nullptr;
  return option != nullptr && !option->options.empty() ? option : nullptr;
}

constexpr size_t kMaxSuggestions = 200;  // finding similar names is slow, and a hostile file has many unknown keys

/// Reports the keys in an unknown section for which `found` was suggested, so that one run names all of them. Those
/// that the meant section has go without saying, as do those of which nothing is known while the section itself leads
/// on.
void report_inside(const Value& value, const std::string& path, const Suggestion& found, const Reading& reading) {
  const Option* section = meant_section(found.paths, reading.root);
  std::vector<const Option*> siblings;
  if (section != nullptr) siblings = options_of_map(section->options, value);
  for (size_t i = 0; i < value.items.size() && reading.problems.size() < kMaxSuggestions; ++i) {
    if (!value.is_map()) {
      report_inside(value.items[i], path, found, reading);
      continue;
    }
    const Value::Key& key = value.keys[i];
    if (find_option(siblings, key.name) != nullptr) continue;
    const Suggestion inside = suggestion(key.name, path, siblings, reading.root);
    const std::string own = join_path(path, display_text(key.name));
    const bool goes_without_saying = inside.text.empty() && found.paths.empty() && !found.text.empty();
    if (!goes_without_saying)
      reading.problems.push_back(problem_in(key.mark, own, std::string(kUnknownKey) + inside.text));
    report_inside(value.items[i], own, inside, reading);
  }
}

/// true or false in place of a toggle's map.
void read_toggle_word(const Value& value, const Option& option, const Location& location) {
  std::string reason;
  const bool other_word = !parse_boolean(value.text, &reason) && reason == kNotBoolean;
  if (other_word && !option.options.empty()) {
    std::vector<std::string_view> names;
    for (const Option& own : option.options) names.push_back(own.name);
    location.problem(value, fmt::format("must be true, false or a map of options ({}): {}", joined(names, ", "),
                                        display_text(value)));
  } else if (const auto on = Form<bool>::read(value, location)) {
    *option.on = *on;
  }
}

void read_option(const Value& value, const Option& option, const std::string& path, const Reading& reading) {
  const Location location{path, option.bounds, &reading.problems};
  if (reading.origins) (*reading.origins)[path] = to_text(value.mark);
  switch (option.kind) {
    case Option::Kind::variant:
      return;  // already read: it decides which other options exist
    case Option::Kind::value:
      if (!value.is_null() || option.nullable) option.read(value, location);
      return;
    case Option::Kind::section:
      if (value.is_map())
        read_map(value, option.options, path, reading);
      else if (!value.is_null())
        location.problem(value,
                         "must be a map of options: " + display_text(value) + value_lead(path, value, reading.root));
      return;
    case Option::Kind::toggle:
      if (value.is_map()) {
        *option.on = true;
        read_map(value, option.options, path, reading);
      } else if (value.is_scalar()) {
        read_toggle_word(value, option, location);
      } else if (!value.is_null()) {
        location.problem(value, "must be true, false or a map of options: " + display_text(value));
      }
  }
}

/// The alternatives of `variant` that have an option called `key`.
std::string owners_of(const Option& variant, std::string_view key) {
  std::vector<std::string_view> names;
  for (const auto& alternative : variant.alternatives)
    for (const Option& option : alternative.options)
      if (find_option({&option}, key)) names.push_back(alternative.name);
  if (names.size() < 3) return joined(names, " and ");
  const std::string_view last = names.back();
  names.pop_back();
  return fmt::format("{} and {}", joined(names, ", "), last);
}

}  // namespace

void report_unknown(const Value::Key& key, const Value& value, const std::string& section,
                    const std::vector<const Option*>& siblings, const Reading& reading) {
  const std::string path = join_path(section, display_text(key.name));
  const bool suggest = reading.problems.size() < kMaxSuggestions;
  const Suggestion found = suggest ? suggestion(key.name, section, siblings, reading.root) : Suggestion();
  reading.problems.push_back(problem_in(key.mark, path, std::string(kUnknownKey) + found.text));
  if (suggest) report_inside(value, path, found, reading);
}

void read_map(const Value& map, const Outline& outline, const std::string& section, const Reading& reading) {
  std::vector<Outline> selected;
  selected.reserve(outline.size());  // `siblings` points into it
  std::vector<const Option*> siblings;
  std::vector<std::pair<const Option*, bool>> variants;  // and whether the recipe's name for it was valid
  for (const Option& option : outline) {
    siblings.push_back(&option);
    if (option.kind != Option::Kind::variant) continue;
    size_t index = option.current();
    const Value* name = map.find(option.name);
    bool good = true;
    if (name && !name->is_null()) {
      const auto names = alternative_names(option);
      const auto named = read_word(*name, {join_path(section, option.name), {}, &reading.problems}, names, names);
      good = named.has_value();
      index = named.value_or(index);
    }
    variants.emplace_back(&option, good);
    selected.push_back(option.select(index));
    for (const Option& own : selected.back()) siblings.push_back(&own);
  }

  for (size_t i = 0; i < map.keys.size(); ++i) {
    const auto& key = map.keys[i];
    if (const Option* option = find_option(siblings, key.name)) {
      read_option(map.items[i], *option, join_path(section, option->name), reading);
      continue;
    }
    const auto owner = std::find_if(variants.begin(), variants.end(),
                                    [&](const auto& variant) { return !owners_of(*variant.first, key.name).empty(); });
    if (owner == variants.end()) {
      report_unknown(key, map.items[i], section, siblings, reading);
    } else if (owner->second) {  // otherwise the invalid name is already reported
      const Option& variant = *owner->first;
      reading.problems.push_back(
          problem_in(key.mark, join_path(section, key.name),
                     fmt::format("an option of {}, but {} is {}", owners_of(variant, key.name),
                                 join_path(section, variant.name), variant.alternatives[variant.current()].name)));
    }
  }
}

}  // namespace trainopt
