// How ranks join a job: each writes its facts to the store, and rank 0 decides for all whether they fit together.
#pragma once

#include "base/json.h"
#include "comm/lost_rank.h"
#include "comm/rendezvous.h"

#include <string>
#include <vector>

namespace trainopt {

/// What a rank writes of itself when it joins.
struct RankFacts {
  std::string recipe;  ///< the resolved text
  std::string build;   ///< program and libtorch
  std::string host;
  std::vector<int> cpus;  ///< that it may use
};

/// Rank 0, which served the store, is gone. Throws UserError(peer); `error` goes to the log.
[[noreturn]] void rank_0_is_gone(const std::exception& error);

/// The facts of all ranks, by rank. Waits until all have come. Throws UserError on rank 0, and PeerFailed with the same
/// message on the others: peer naming those that are missing after the timeout; recipe naming those that differ in
/// recipe, build or number of ranks.
std::vector<Json> admit(c10d::Store& store, const MeetingPoint& where, const RankFacts& mine);

/// The cores that this rank may use: its own, or its share of those that it has in common with other ranks.
int64_t share_of_cores(const std::vector<Json>& facts, int64_t rank);
bool on_one_machine(const std::vector<Json>& facts);

}  // namespace trainopt
