// Agreement between the ranks of a job: what to do next, shared buffers, and one record for all ranks. Every rank must
// call the same functions in the same order. With one rank nothing is exchanged.
#pragma once

#include "comm/communicator.h"
#include "metrics/record.h"
#include "model/builder.h"
#include "model/weights_file.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

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

// The ranks that a trainer's rank works with. Ranks are ordered by stage first: with 2 stages and 3 replicas, ranks 0
// to 2 hold the first stage. Without a pipeline all ranks are replicas of each other.

/// How the model's units are divided among ranks (parallel.pipeline). Without a pipeline there is one stage.
struct StagePlan {
  std::vector<UnitRange> units{{}};  ///< each stage's units, in order
  int64_t stage = 0;                 ///< this rank's stage
  RankPosition replica;              ///< this rank's position among those that hold the same stage
  int64_t micro_batches = 1;         ///< parts of a batch of the loader
  int64_t parameters = 0;            ///< values that this rank holds; with one stage the model's

  int64_t stages() const { return static_cast<int64_t>(units.size()); }
  const UnitRange& held() const { return units[static_cast<size_t>(stage)]; }
  int64_t stage_of(size_t unit) const {
    int64_t of_unit = 0;
    while (!units[static_cast<size_t>(of_unit)].contains(unit)) ++of_unit;
    return of_unit;
  }
  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage + 1 == stages(); }
  /// The first rank that holds this stage.
  int64_t first_rank_of(int64_t of_stage) const { return of_stage * replica.ranks; }
};

class RankGroups {
 public:
  /// Every rank of the job must call it. `job` must outlive this object.
  RankGroups(Communicator& job, const StagePlan& plan);

  Communicator& job() { return job_; }
  /// Ranks that hold the same units and train on other samples.
  Communicator& replicas() { return replicas_ ? *replicas_ : job_; }
  // Ranks that hold the stages of one model, in order. There are two communicators, so that a message forward never
  // waits behind one backward.
  Communicator& stages_forward() { return *stages_forward_; }
  Communicator& stages_backward() { return *stages_backward_; }

  /// The communicators that are not the job's; none without a pipeline.
  std::vector<Communicator*> of_pipeline();

 private:
  Communicator& job_;
  std::unique_ptr<Communicator> replicas_, stages_forward_, stages_backward_;  ///< null without a pipeline
};

// Finds silent data corruption: weights of which every rank has a copy must have the same bits on all ranks. Each rank
// computes a checksum per tensor on its device, and the ranks exchange one of 64 bits over all of them. Only if these
// differ do they compare tensor by tensor, to name the rank and the first tensor that differ.

/// Checksum of the bits of `tensor`, whatever its type: Σ (2i + 1)·xᵢ modulo 2⁶⁴ over its elements in memory order,
/// read as integers. An int64 scalar on the tensor's device; does not wait for it. The sum has no rounding, so its
/// order does not matter. The weights are odd and differ, so one changed element, or two exchanged elements of up to 32
/// bits, always change the sum. The elements must fill their memory without gaps. Needs 64 MiB of temporary memory at
/// most.
at::Tensor checksum(const at::Tensor& tensor);

class ReplicaCheck {
 public:
  /// `communicator` must outlive this object. `every_n_steps`: 0 for never.
  ReplicaCheck(Communicator& communicator, int64_t every_n_steps)
      : communicator_(communicator), every_n_steps_(every_n_steps) {}

  bool enabled() const { return every_n_steps_ > 0 && communicator_.ranks() > 1; }
  bool due(int64_t step) const { return enabled() && step % every_n_steps_ == 0; }
  /// Compares the tensors, the same list on every rank, after `step`. Waits for the device; every rank must call it.
  /// Throws UserError on all ranks if any differ: hardware with the rank (with two ranks, both) and the first tensor
  /// that differ, or diverged if that tensor is non-finite on every rank, since the bits of a NaN are arbitrary.
  void compare(const NamedTensors& tensors, int64_t step);

 private:
  Communicator& communicator_;
  int64_t every_n_steps_;
  std::optional<int64_t> passed_step_;  ///< step of the last comparison without a difference
};

}  // namespace trainopt
