// Merges several sources into one tree: maps merge recursively, lists and scalars replace, null restores the default,
// and a boolean replaces a map of options and vice versa. Aliases become the keys they stand for.
#pragma once

#include "config/load.h"

namespace trainopt {

/// Merges the map `from` over the map `into`. Reports unknown keys, and an alias given together with its key. If `from`
/// changes the name of a variant, or a value that some options are `only_for`, the options of the old one from earlier
/// sources are dropped and `notes` says so.
void merge_map(Value& into, const Value& from, const Outline& outline, const std::string& section,
               const Reading& reading, std::vector<std::string>& notes);

/// Merges one override over the earlier ones, without knowing the options: the later of two for the same key wins.
void merge_plain(Value& into, const Value& from);

}  // namespace trainopt
