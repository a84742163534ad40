// Where a process stands among the ranks of its job.
#pragma once

#include <cstdint>

namespace trainopt {

struct RankPosition {
  int64_t rank = 0, ranks = 1;              ///< of the job
  int64_t local_rank = 0, local_ranks = 1;  ///< of this machine

  bool is_first() const { return rank == 0; }
  bool one_machine() const { return local_ranks == ranks; }
  bool operator==(const RankPosition&) const = default;
};

}  // namespace trainopt
