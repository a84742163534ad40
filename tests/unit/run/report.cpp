// How a run ended, as its summary says it.
#include "run/report.h"

#include "base/signals.h"
#include "support/catch.h"
#include "support/plans.h"

#include <csignal>

using namespace trainopt;
using test::small_plan;

namespace {

RunOutcome outcome_after(int64_t steps, int stopped_by = 0) {
  RunOutcome outcome;
  outcome.steps = steps;
  outcome.samples = 8 * steps;
  outcome.training_s = 3600;
  outcome.stopped_by_signal = stopped_by;
  return outcome;
}

}  // namespace

TEST_CASE("a run that took all its steps is done, and says how often it was restarted") {
  const Plan plan = small_plan(20);
  CHECK(end_of_run(outcome_after(20), plan, std::nullopt, 0).status == "done");
  CHECK(end_of_run(outcome_after(20), plan, std::nullopt, 0).reason == "after 20 steps");
  CHECK(end_of_run(outcome_after(20), plan, std::nullopt, 2).reason == "after 20 steps, with 2 restarts");
  CHECK(end_of_run(outcome_after(20), plan, std::nullopt, 0).exit_code == 0);
}

TEST_CASE("a run that a signal stopped names the checkpoint only if it is of its last step") {
  const Plan plan = small_plan(20);
  const RunEnd saved = end_of_run(outcome_after(7, SIGTERM), plan, 7, 0),
               lost = end_of_run(outcome_after(7, SIGTERM), plan, 5, 0);
  CHECK(saved.status == "stopped");
  CHECK(saved.exit_code == 128 + SIGTERM);
  CHECK_THAT(saved.reason, ContainsSubstring("by signal 15 after 7 steps, saved as step-"));
  CHECK(lost.reason == "by signal 15 after 7 steps");
}

TEST_CASE("a run whose directory another folder replaced is an error of storage, and not a signal's end") {
  const RunEnd end = end_of_run(outcome_after(7, kFolderTaken), small_plan(20), std::nullopt, 0);
  CHECK(end.status == "stopped");
  CHECK(end.exit_code == static_cast<int>(ExitCode::storage));
}

TEST_CASE("what it took to reach the target, or what was spent in vain") {
  Plan plan = small_plan(20);
  CHECK(target_json(outcome_after(20), plan, Json()).is_null());
  plan.train.target.loss = 2;
  plan.bench.price_per_hour = 3;
  RunOutcome outcome = outcome_after(20);
  const Json in_vain = target_json(outcome, plan, Json());
  CHECK(in_vain.at("reached") == false);
  CHECK(in_vain.at("step") == 20);
  CHECK(in_vain.at("price") == 3);
  CHECK(in_vain.at("energy_j").is_null());
  outcome.target = TargetReached{10, 80, 1800};
  const Json reached = target_json(outcome, plan, 0.5);
  CHECK(reached.at("reached") == true);
  CHECK(reached.at("step") == 10);
  CHECK(reached.at("price") == 1.5);
  CHECK(reached.at("energy_j") == 160);
}
