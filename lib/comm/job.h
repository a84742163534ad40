// Coordinates the ranks of a job: rendezvous, agreement on recipe and build, failure reports, and detection of silent
// ranks.
#pragma once

#include "comm/communicator.h"
#include "comm/heartbeat.h"
#include "comm/rendezvous.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

// How ranks join a job: each writes its facts to the store, and rank 0 checks that they match.

/// What a rank reports about itself when it joins.
struct RankFacts {
  std::string recipe;  ///< resolved, as text
  std::string build;   ///< identifies program and libtorch
  std::string host;
  std::vector<int> cpus;  ///< CPUs in its affinity mask
};

class Job {
 public:
  /// Waits until all ranks have joined and agree. Throws UserError: `peer` naming the ranks that are missing after the
  /// timeout, `recipe` naming the ranks that differ in recipe, build or number of ranks.
  Job(RendezvousOptions options, RankFacts mine);
  /// Tells the others that this rank is done. If rank 0 serves the store, it then waits until the others have left or
  /// fallen silent.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// For tensors on `device`: NCCL on a GPU, otherwise Gloo. Every rank must call it. Throws LostRank.
  /// `min_timeout_s`: its exchanges wait at least so long.
  std::unique_ptr<Communicator> make_communicator(c10::Device device = at::kCPU, double min_timeout_s = 0);
  /// With which another process of this rank joins its counterparts on the other ranks, as a job of its own. It uses
  /// this job's store, so this job must outlive it. `name`: the same on every rank, not used before.
  RendezvousOptions rendezvous_of(const std::string& name) const;
  /// Whether a rank of that job has reported a failure, or has found that another rank is lost. Throws LostRank.
  bool has_failed(const std::string& name);
  /// Cores for this rank: its own if the launcher has divided the machine's cores, otherwise its share of the cores
  /// that several ranks may use.
  int64_t cores() const { return cores_; }
  /// The key made for this job's part of the store; empty if it has none.
  const std::string& key() const { return rendezvous_.part.key; }

  /// Records this rank's progress, for the others to read if it falls silent. `stage` must be a string literal.
  /// Wait-free; call from one thread only.
  void at(const char* stage, int64_t steps) noexcept { heartbeat_->at(stage, steps); }
  /// The job ends with the failure of the first rank that calls this. Returns whether this rank was the first.
  bool report_failure(ExitCode code, const std::string& message);
  /// Finds out why a rank was lost. Throws PeerFailed if a rank has reported its failure or another rank reports this
  /// one, otherwise UserError(peer) naming the ranks that are gone, silent or behind. Takes several seconds.
  [[noreturn]] void explain(const LostRank& lost);

  // Short texts that one rank writes and all ranks can read.
  void put(const std::string& key, const std::string& value);
  /// Waits for the text. Throws LostRank after the timeout, or as soon as a rank has reported its failure.
  std::string get(const std::string& key);

 private:
  bool has(const std::string& key);  // throws LostRank

  RendezvousOptions options_;
  Rendezvous rendezvous_;
  c10::intrusive_ptr<c10d::Store> store_, beat_store_,
      explain_store_;  ///< separate connections: a hanging call blocks all others on its connection
  std::string address_;
  int64_t cores_ = 1;
  int64_t communicators_ = 0;
  std::optional<Heartbeat> heartbeat_;  ///< set from construction to destruction
};

}  // namespace trainopt
