// Ranks arrive, say what they are, and rank 0 decides for all whether they make a job.
#pragma once

#include "base/json.h"
#include "comm/lost_rank.h"
#include "comm/rendezvous.h"

#include <string>
#include <vector>

namespace trainopt {

/// What a rank says of itself when it arrives.
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

/// The cores that this rank may keep busy: those it has alone, or its share of those it has in common.
int64_t share_of_cores(const std::vector<Json>& facts, int64_t rank);
bool on_one_machine(const std::vector<Json>& facts);

}  // namespace trainopt
