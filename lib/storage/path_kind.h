// What a path is, by its text alone.
#pragma once

#include <string_view>

namespace trainopt {

inline constexpr std::string_view kRemoteScheme = "s3://", kPatternCharacters = "*?[";

/// Whether the path is in object storage: s3://bucket/key.
inline bool is_remote(std::string_view path) { return path.starts_with(kRemoteScheme); }
/// Whether the path has a shell's pattern characters.
inline bool is_pattern(std::string_view path) {
  return path.find_first_of(kPatternCharacters) != std::string_view::npos;
}

}  // namespace trainopt
