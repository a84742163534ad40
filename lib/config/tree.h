// Parses recipe text into a tree. Only tree.cpp and tree_builder use yaml-cpp. What yaml-cpp accepts silently but a
// recipe must not contain (duplicate keys, tags, merge keys, a second document, alias bombs, cycles, invalid UTF-8) is
// rejected during parsing.
#pragma once

#include "config/value.h"

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace trainopt {

/// Limits of one source.
inline constexpr size_t kMaxRecipeBytes = size_t{1} << 20;
inline constexpr int kMaxDepth = 64;
inline constexpr size_t kMaxNodes = 100'000;              ///< with aliases expanded
inline constexpr size_t kMaxTextBytes = size_t{4} << 20;  ///< bytes of all scalars and keys, with aliases expanded
inline constexpr size_t kMaxMarks = 2 * kMaxNodes;        ///< [ ] { } , :

/// All throw RecipeErrors with one problem. The root of a file must be a map.
Value parse_file(const std::filesystem::path& path);
Value parse_text(std::string_view text, const std::string& name);
/// "key.path=value" or "--key.path=value" as a map of maps; every mark is "command line 'key.path=value'".
Value parse_override(const std::string& text);

}  // namespace trainopt
