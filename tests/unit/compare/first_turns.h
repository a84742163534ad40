// The first turns of trainings, for comparing their numbers.
#pragma once

#include "compare/arms/local_arm.h"
#include "compare/baseline.h"
#include "compare/numbers/numerics.h"
#include "support/temporary_folder.h"

#include <deque>

namespace trainopt::test {

class FirstTurns {
 public:
  explicit FirstTurns(int64_t steps) : steps_(steps) {}

  /// Trains `plan`; the result is valid as long as this object.
  FirstSteps train(const Plan& plan) {
    const auto folder = folder_ / std::to_string(turns_.size());
    turns_.push_back(LocalArm(plan, folder).turn(steps_));
    return {turns_.back(), folder};
  }

  /// As many twins as `compare` trains, each made from its number.
  std::vector<FirstSteps> train_twins(const std::function<Plan(int64_t number)>& twin) {
    std::vector<FirstSteps> all;
    for (int64_t number = 0; number < CompareOptions().twins; ++number) all.push_back(train(twin(number)));
    return all;
  }

 private:
  const TemporaryFolder folder_;
  int64_t steps_;
  std::deque<Turn> turns_;
};

/// `plan` from slightly perturbed weights.
inline Plan perturbed(Plan plan, int64_t number) {
  begin_perturbed(plan, static_cast<uint64_t>(number));
  return plan;
}

/// `plan` with other batches.
inline Plan reseeded(Plan plan, int64_t number) {
  plan.data.seed += static_cast<uint64_t>(1 + number);
  return plan;
}

}  // namespace trainopt::test
