#include "optimizations/sharding/machine_groups.h"

#include "base/error.h"

#include <array>

namespace trainopt {
namespace {

constexpr const char* kKey = "parallel.sharding_strategy";

/// A machine sees only its own ranks, so all tell each other how many they are.
void require_equal_machines(Communicator& job) {
  const std::vector<double> counts = job.gather(std::array{static_cast<double>(job.position().local_ranks)});
  for (size_t rank = 1; rank < counts.size(); ++rank)
    if (counts[rank] != counts[0])
      throw UserError(
          fmt::format("{}: hybrid needs the same number of ranks on every machine: {} on that of rank 0, {} on that of "
                      "rank {}",
                      kKey, counts[0], counts[rank], rank));
}

}  // namespace

void require_machines(const RankPosition& position) {
  if (position.local_ranks == 1)
    throw UserError(
        fmt::format("{}: hybrid divides the model among the ranks of a machine, but this machine has only 1 of the {} "
                    "ranks; use zero3 or none",
                    kKey, position.ranks));
  if (position.ranks % position.local_ranks != 0)
    throw UserError(fmt::format("{}: hybrid needs the same number of ranks on every machine, but this one has {} of {}",
                                kKey, position.local_ranks, position.ranks));
  if (position.rank % position.local_ranks != position.local_rank)
    throw UserError(
        fmt::format("{}: hybrid needs ranks that follow each other machine after machine, but rank {} is number {} of "
                    "{} on its machine",
                    kKey, position.rank, position.local_rank + 1, position.local_ranks));
}

MachineGroups connect_machines(Communicator& job) {
  const RankPosition& position = job.position();
  require_machines(position);
  require_equal_machines(job);
  std::vector<int64_t> here, alike;
  const int64_t first = position.rank - position.local_rank;
  for (int64_t rank = first; rank < first + position.local_ranks; ++rank) here.push_back(rank);
  for (int64_t rank = position.local_rank; rank < position.ranks; rank += position.local_ranks) alike.push_back(rank);
  return {.inside = job.among(here), .across = job.among(alike)};
}

}  // namespace trainopt
