// The ranks that a trainer's rank works with. Ranks are ordered by stage first: with 2 stages and 3 replicas, ranks 0
// to 2 hold the first stage. Without a pipeline all ranks are replicas of each other.
#pragma once

#include "comm/communicator.h"
#include "model/builder.h"

#include <memory>
#include <vector>

namespace trainopt {

/// How the model's units are divided among ranks (parallel.pipeline). Without a pipeline there is one stage.
struct StagePlan {
  std::vector<UnitRange> units{{}};  ///< of each stage, in order
  int64_t stage = 0;                 ///< this rank's
  RankPosition replica;              ///< of this rank among those that hold the same stage
  int64_t micro_batches = 1;         ///< into which a batch of the loader is divided
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

}  // namespace trainopt
