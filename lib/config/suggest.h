// "did you mean": the nearest name at this level, the same name in another section, or another tool's name for it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

struct Option;

/// `word` in lower case, with _ for - and space.
std::string folded(std::string_view word);
/// Why an option of another tool does not exist here; empty if it is none of the known ones.
std::string_view why_unsupported(std::string_view key);

/// The number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`. Ignores case and
/// the difference between -, _ and space.
size_t edit_distance(std::string_view a, std::string_view b);
/// Which of `words` the user probably meant by `word`: a name one letter off, or else one that starts with `word`, or
/// else the nearest within a third of its letters. Empty if there is none.
std::string closest_match(std::string_view word, std::span<const std::string_view> words);

/// The end of an "unknown key" message, such as " (did you mean 'data.batch_size'?)"; empty if nothing is similar.
/// `siblings`: the options that the unknown key's map may hold; `section`: the map's path; `all`: the whole recipe.
std::string suggestion(std::string_view key, const std::string& section, const std::vector<const Option*>& siblings,
                       const std::vector<Option>& all);

}  // namespace trainopt
