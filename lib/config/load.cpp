#include "config/load.h"

#include "config/merge.h"
#include "config/tree.h"

#include <algorithm>
#include <cstdio>
#include <set>

namespace trainopt {
namespace {

/// Whether an override is "key=null".
bool is_reset(const Value& value) {
  return value.is_map() && value.items.size() == 1 ? is_reset(value.items.front()) : value.is_null();
}

/// Restores defaults at once: a later override within the same section replaces the null among the overrides, and would
/// otherwise be merged into the files' values. The null remains an override, so problems are reported there.
void reset_now(Value& merged, const Value& null, const Outline& outline, std::vector<std::string>& notes) {
  std::vector<Problem> problems;
  merge_map(merged, null, outline, "", Reading{outline, problems, nullptr}, notes);
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
    parsed([&] { merge_map(merged, parse_file(file), outline, "", reading, loaded.notes); });

  Value overrides = empty_map();
  for (const auto& text : sources.overrides)
    parsed([&] {
      const Value value = parse_override(text);
      if (is_reset(value)) reset_now(merged, value, outline, loaded.notes);
      merge_plain(overrides, value);
    });
  merge_map(merged, overrides, outline, "", reading, loaded.notes);

  read_map(merged, outline, "", reading);
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

}  // namespace trainopt
