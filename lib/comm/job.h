// The ranks of a job as one: they meet, agree that they are the same program with the same recipe, hear of each other's
// failures, and know who has fallen silent.
#pragma once

#include "comm/admission.h"
#include "comm/communicator.h"
#include "comm/config.h"
#include "comm/heartbeat.h"
#include "comm/lost_rank.h"
#include "comm/rendezvous.h"

#include <optional>
#include <string>

namespace trainopt {

class Job {
 public:
  /// Waits until all ranks are there and have said the same. Throws UserError: peer naming those that are missing after
  /// the timeout; recipe naming those that differ in recipe, build or number of ranks.
  Job(MeetingPoint where, RankFacts mine);
  /// Tells the others that this rank is done. Rank 0, which serves the store, stays until they are, or silent.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// For tensors on `device`: NCCL for a GPU, otherwise Gloo. Every rank must call it. Throws UserError(peer).
  std::unique_ptr<Communicator> make_communicator(c10::Device device = at::kCPU, const NcclConfig& nccl = {});
  /// Cores of this machine for each of its ranks: its own where the launcher has divided them, else its share of those
  /// they all may use.
  int64_t cores() const { return cores_; }

  /// Where this rank is, for the others to read if it falls silent. Must be a string literal. Wait-free; called by one
  /// thread.
  void at(const char* stage, int64_t steps) noexcept { heartbeat_->at(stage, steps); }
  /// The first rank to call it is the one whose failure the job ends with. Whether this is it.
  bool report_failure(ExitCode code, const std::string& message);
  /// What LostRank means: PeerFailed if a rank has reported its failure or somebody else explains this one, otherwise
  /// UserError(peer) naming the ranks that are gone, silent or behind. Takes some seconds.
  [[noreturn]] void explain(const LostRank& lost);

  // Small texts that all ranks can read once one has written them.
  void put(const std::string& key, const std::string& value);
  /// Waits for it. Throws LostRank after the timeout, or as soon as a rank has reported its failure.
  std::string get(const std::string& key);

 private:
  bool has(const std::string& key);

  MeetingPoint where_;
  c10::intrusive_ptr<c10d::Store> store_, beat_store_,
      asking_store_;  ///< a call that hangs holds up all others of its connection
  std::string address_;
  int64_t cores_ = 1;
  int64_t communicators_ = 0;
  std::optional<Heartbeat> heartbeat_;  ///< there from construction to destruction
};

}  // namespace trainopt
