// The ranks of a job as one: they meet, agree that they are the same program with the same recipe, hear of each other's
// failures, and know who has fallen silent.
#pragma once

#include "base/json.h"
#include "comm/communicator.h"
#include "comm/config.h"
#include "comm/lost_rank.h"
#include "comm/rendezvous.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace trainopt {

/// What a rank says of itself when it arrives.
struct RankFacts {
  std::string recipe;  ///< the resolved text
  std::string build;   ///< program and libtorch
  std::string host;
  std::vector<int> cpus;  ///< that it may use
};

/// A rank has failed and said why; this one ends with the same code and says nothing.
class PeerFailed : public UserError {
 public:
  using UserError::UserError;
};

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

  /// Where this rank is, for the others to read if it falls silent. A literal. Wait-free, of one thread.
  void at(const char* stage, int64_t steps) noexcept;
  /// The first rank to call it is the one whose failure the job ends with. Whether this is it.
  bool tell_failure(ExitCode code, const std::string& message);
  /// What LostRank means: PeerFailed if a rank has told its failure or somebody else explains this one, otherwise
  /// UserError(peer) naming the ranks that are gone, silent or behind. Takes some seconds.
  [[noreturn]] void explain(const LostRank& lost);

  // Small texts that all ranks can read once one has written them.
  void put(const std::string& key, const std::string& value);
  /// Waits for it. Throws LostRank after the timeout, or as soon as a rank has told its failure.
  std::string get(const std::string& key);

 private:
  struct Beat;
  std::vector<Json> all_facts();
  void beat();
  std::vector<Beat> beats(c10d::Store& store) const;
  static std::optional<std::string> failure(c10d::Store& store);
  bool has(const std::string& key);

  MeetingPoint where_;
  c10::intrusive_ptr<c10d::Store> store_, beat_store_,
      asking_store_;  ///< a call that hangs holds up all others of its client
  std::string address_;
  int64_t cores_ = 1;
  int64_t communicators_ = 0;
  std::atomic<const char*> stage_{"start"};
  std::atomic<int64_t> steps_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool leaving_ = false;
  std::thread beating_;
};

}  // namespace trainopt
