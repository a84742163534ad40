// The names under which ranks keep what they say in the job's store.
#pragma once

#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <vector>

namespace trainopt {

/// "beat/3": what rank 3 keeps under that name.
inline std::string rank_key(const char* name, int64_t rank) { return fmt::format("{}/{}", name, rank); }

/// "ranks 1, 2", "rank 3".
inline std::string ranks_text(const std::vector<int64_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace trainopt
