// Recognises files that are something else than a reader expects, so that its message can say what they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace trainopt {

/// So many of a file's first bytes are enough for what_it_is().
inline constexpr int64_t kKindBytes = 512;

/// "a Git LFS pointer; fetch the file itself with `git lfs pull`": what a file is by its first bytes, and what to do.
/// Empty if they are not known. `least`: of the bytes that tell a kind; more of them where a file may begin with any.
/// Sources: the formats' specifications, and the magic numbers of file(1).
std::string_view what_it_is(std::string_view start, size_t least = 2);
std::string_view what_it_is(std::span<const uint8_t> start, size_t least = 2);

}  // namespace trainopt
