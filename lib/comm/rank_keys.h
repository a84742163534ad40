// Keys in the job's store, and rank lists for messages.
#pragma once

#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <vector>

namespace trainopt {

/// Key of a value that one rank writes: "beat/3".
inline std::string rank_key(const char* name, int64_t rank) { return fmt::format("{}/{}", name, rank); }

/// "ranks 1, 2", "rank 3".
inline std::string ranks_text(const std::vector<int64_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace trainopt
