// "did you mean": the nearest name at this level, the same name in another section, or another tool's word for it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

struct Option;

/// Insertions, deletions, substitutions and swaps of neighbours that make `a` into `b`; case and - _ do not count.
size_t edit_distance(std::string_view a, std::string_view b);
/// The one of `words` that is meant: one letter off, or begun by `word`, or the nearest if it is near enough (a third
/// of its letters); empty if none is.
std::string nearest_of(std::string_view word, std::span<const std::string_view> words);

/// The end of an "unknown key" message, such as " (did you mean 'data.batch_size'?)"; empty if nothing is near.
/// `here`: what the map of the unknown key may hold; `section`: its path; `all`: the whole recipe.
std::string suggestion(std::string_view key, const std::string& section, const std::vector<const Option*>& here,
                       const std::vector<Option>& all);

}  // namespace trainopt
