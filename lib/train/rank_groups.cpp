#include "train/rank_groups.h"

namespace trainopt {

RankGroups::RankGroups(Communicator& job, const StagePlan& plan) : job_(job) {
  if (plan.stages() == 1) return;
  std::vector<int64_t> same_stage, same_model;
  for (int64_t replica = 0; replica < plan.replica.ranks; ++replica)
    same_stage.push_back(plan.first_rank_of(plan.stage) + replica);
  for (int64_t stage = 0; stage < plan.stages(); ++stage)
    same_model.push_back(plan.first_rank_of(stage) + plan.replica.rank);
  replicas_ = job.among(same_stage);
  stages_forward_ = job.among(same_model);
  stages_backward_ = job.among(same_model);
}

std::vector<Communicator*> RankGroups::of_pipeline() {
  if (!replicas_) return {};
  return {replicas_.get(), stages_forward_.get(), stages_backward_.get()};
}

}  // namespace trainopt
