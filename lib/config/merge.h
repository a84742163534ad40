// Several sources become one tree: maps merge deeply, lists and scalars replace, null takes back what came before, a
// boolean replaces a map of options and the other way round. Aliases become the keys they stand for.
#pragma once

#include "config/read.h"

namespace trainopt {

/// Merges the map `from` over the map `into`. Problems: unknown keys, an alias beside its key. A changed name of a
/// variant drops the earlier sources' options of that variant, and `notes` says so.
void merge_map(Value& into, const Value& from, const Outline& outline, const std::string& section,
               const Reading& reading, std::vector<std::string>& notes);

/// The same without knowing the options: overrides become one source, the later of two for the same key wins.
void merge_plain(Value& into, const Value& from);

}  // namespace trainopt
