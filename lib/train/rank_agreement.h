// What the ranks of a job must know of each other: what they do next, what they have in common, and one record for all.
// Every rank calls the same functions in the same order. With one rank nothing is exchanged.
#pragma once

#include "comm/communicator.h"
#include "metrics/record.h"

namespace trainopt {

class Model;

/// What decides whether another step follows, and what comes between.
struct Wishes {
  int stop_signal = 0;  ///< 0: none
  bool save = false;    ///< a checkpoint, now
  bool out_of_time = false;
};

class RankAgreement {
 public:
  /// `communicator` must outlive it.
  explicit RankAgreement(Communicator& communicator) : communicator_(communicator) {}

  /// What each rank wishes becomes what all of them do: the first rank's signal, any rank's wish for a checkpoint, and
  /// rank 0's clock.
  void agree(const Wishes& mine);
  /// Of the last agree(). Only this may decide what a rank does next.
  const Wishes& agreed() const { return agreed_; }
  bool stopped() const { return agreed_.stop_signal != 0; }

  /// The buffers of every rank's model become rank 0's (batch-norm's statistics), as in torch's
  /// DistributedDataParallel; needed where they are used or kept.
  void share_buffers(const Model& model);

  /// One record of a step for all ranks. The loss is a sum: each rank has its share of the step's mean. Everything else
  /// is rank 0's, and what may differ is there for each rank.
  StepRecord over_ranks(const StepRecord& row);

  /// Adds what was exchanged since the last call: MiB by collective, and the time that was waited for it. Returns the
  /// bytes that this rank sent.
  double add_traffic(PendingRecord& record);
  /// What was exchanged since the last call belongs to no step.
  void drop_traffic() { communicator_.take_traffic(); }

 private:
  Communicator& communicator_;
  Wishes agreed_;
};

}  // namespace trainopt
