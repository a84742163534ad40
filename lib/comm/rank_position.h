// A process's rank in its job and on its machine.
#pragma once

#include <cstdint>

namespace trainopt {

struct RankPosition {
  int64_t rank = 0, ranks = 1;              ///< in the job
  int64_t local_rank = 0, local_ranks = 1;  ///< on this machine

  bool is_first() const { return rank == 0; }
  bool one_machine() const { return local_ranks == ranks; }
  bool operator==(const RankPosition&) const = default;
};

}  // namespace trainopt
