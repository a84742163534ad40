// "did you mean": another trainer's word for it, the nearest name at this level, or the same name in another section.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

struct Lead;
struct Option;
struct Problem;
struct Value;

/// The number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`. Ignores case and
/// the difference between -, _ and space.
size_t edit_distance(std::string_view a, std::string_view b);
/// Which of `words` the user probably meant by `word`: a name one letter off, or else one that starts with `word`, or
/// else the nearest within a few letters. Empty if there is none.
std::string closest_match(std::string_view word, std::span<const std::string_view> words);

struct Suggestion {
  std::string text;                ///< " (did you mean 'data.batch_size'?)"; empty if nothing is similar
  std::vector<std::string> paths;  ///< the full keys or sections that it names
};
/// For the "unknown key" message. `siblings`: the options that the unknown key's map may hold; `section`: the map's
/// path; `all`: the whole recipe.
Suggestion suggestion(std::string_view key, const std::string& section, const std::vector<const Option*>& siblings,
                      const std::vector<Option>& all);

/// What a lead says at the end of a message; empty if none of its keys is in the recipe `all`.
std::string text_of(const Lead& lead, const std::vector<Option>& all);

/// What to write in place of the scalar `value` of the key `path`, for the end of a message; empty if nothing is known.
std::string value_lead(const std::string& path, const Value& value, const std::vector<Option>& all);
/// Adds to problems with the values that `map` gives what to write in their place, if the table of leads has them.
void add_value_leads(std::vector<Problem>& problems, const Value& map, const std::vector<Option>& all);

/// The option or section at a full path in any of its alternatives; null: there is none.
const Option* option_at(const std::vector<Option>& all, std::string_view path);

}  // namespace trainopt
