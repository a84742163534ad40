// Agreement between the ranks of a job: what to do next, shared buffers, and one record for all ranks. Every rank must
// call the same functions in the same order. With one rank nothing is exchanged.
#pragma once

#include "comm/communicator.h"
#include "metrics/record.h"

namespace trainopt {

class Model;

/// What a rank wants to happen before the next step.
struct RankRequests {
  int stop_signal = 0;  ///< 0: none
  bool save = false;    ///< save a checkpoint now
  bool out_of_time = false;
};

class RankAgreement {
 public:
  /// `communicator` must outlive this object.
  explicit RankAgreement(Communicator& communicator) : communicator_(communicator) {}

  /// Combines the requests of all ranks: the signal of the lowest rank that has one, a checkpoint if any rank wants
  /// one, and rank 0's clock.
  void agree(const RankRequests& mine);
  /// The result of the last agree(). Ranks must decide what to do next only by this.
  const RankRequests& agreed() const { return agreed_; }
  bool stopped() const { return agreed_.stop_signal != 0; }

  /// Copies the model buffers (batch-norm statistics) of the first of `replicas` to all of them, as torch's
  /// DistributedDataParallel does. Call before they are used or saved.
  void broadcast_buffers(const Model& model, Communicator& replicas);

  /// Merges the ranks' records of a step into one. The loss is summed, since each rank has its share of the step's
  /// mean; `nonfinite` is the maximum. Other values are rank 0's; step, data-wait and communication times are also
  /// listed per rank.
  StepRecord over_ranks(const StepRecord& row);

  /// The numbers of all ranks, in the order of ranks; a rank may have any number of them.
  std::vector<int64_t> over_ranks(const std::vector<int64_t>& mine);

  /// Also count this communicator's traffic. It must outlive this object.
  void also_count(Communicator& communicator) { counted_.push_back(&communicator); }
  /// Bytes that this rank sent in collectives; `across`: between ranks of which each is on another machine. What it
  /// sent to single ranks is in the record only.
  struct Sent {
    double all = 0, across = 0;
  };
  /// Adds the traffic since the last call: MiB per collective, and the time spent waiting for it.
  Sent add_traffic(PendingRecord& record);
  /// Discards the traffic since the last call, which belongs to no step.
  void drop_traffic() const {
    for (Communicator* communicator : counted_) communicator->take_traffic();
  }

 private:
  Communicator& communicator_;
  std::vector<Communicator*> counted_{&communicator_};
  RankRequests agreed_;
};

}  // namespace trainopt
