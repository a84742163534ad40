// How ranks join a job: each writes its facts to the store, and rank 0 checks that they match.
#pragma once

#include "base/json.h"
#include "comm/lost_rank.h"
#include "comm/rendezvous.h"

#include <string>
#include <vector>

namespace trainopt {

/// What a rank reports about itself when it joins.
struct RankFacts {
  std::string recipe;  ///< resolved, as text
  std::string build;   ///< identifies program and libtorch
  std::string host;
  std::vector<int> cpus;  ///< CPUs in its affinity mask
};

/// Call when rank 0, which served the store, is gone. Throws UserError(peer); `error` goes to the debug log.
[[noreturn]] void throw_rank_0_lost(const std::exception& error, const RendezvousOptions& options);

/// Waits until all ranks have joined and returns their facts, indexed by rank. On failure it throws UserError on rank 0
/// and PeerFailed with the same message on the others: `peer` naming the ranks that are missing after the timeout, or
/// `recipe` naming the ranks that differ in recipe, build or number of ranks.
/// `port_file` is removed once nobody needs it; empty: none.
std::vector<Json> admit(c10d::Store& store, const RendezvousOptions& options, const RankFacts& mine,
                        const std::filesystem::path& port_file);

/// Cores for this rank: the number of CPUs it may use, divided by the number of ranks on its host that may use any of
/// them; at least 1.
int64_t share_of_cores(const std::vector<Json>& facts, int64_t rank);
/// Whether all ranks run on the same host.
bool on_one_machine(const std::vector<Json>& facts);

}  // namespace trainopt
