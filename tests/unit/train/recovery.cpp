// Recovery by itself: what it undoes, repeats and reports, without a trainer around it.
#include "train/recovery.h"

#include "device/tensor.h"
#include "support/catch.h"
#include "support/plans.h"
#include "train/step.h"
#include "train/watch.h"

#include <c10/util/Exception.h>

#include <limits>

using namespace trainopt;
using namespace trainopt::test;

namespace {

class NonfiniteRows : public Rows {
 public:
  void not_finite(const NonfiniteStep& event) override { events.push_back(event); }
  std::vector<NonfiniteStep> events;
};

struct RecoveredRun {
  explicit RecoveredRun(Plan its_plan) : plan(std::move(its_plan)) {
    step.build();
    watch.attach({});
  }

  Plan plan;
  std::unique_ptr<Communicator> communicator = make_single_communicator();
  RunOutcome outcome;
  Step step{plan, *communicator, outcome.steps};
  RankAgreement ranks{*communicator};
  StepWatch watch{plan, step, ranks, outcome, nullptr};
  NonfiniteRows rows;
  int reopened = 0, started_again = 0;
  Recovery recovery{{.plan = plan,
                     .step = step,
                     .watch = watch,
                     .ranks = ranks,
                     .listener = rows,
                     .outcome = outcome,
                     .reopen_data = [this] { ++reopened; },
                     .start_again = [this] { ++started_again; }}};
};

[[noreturn]] void run_out_of_memory() { C10_THROW_ERROR(OutOfMemoryError, "made up by this test"); }

StepRecord row_of(int64_t step, double loss) {
  StepRecord row;
  row[Metric::step] = static_cast<double>(step);
  row[Metric::loss] = loss;
  return row;
}

}  // namespace

TEST_CASE("work that runs out of memory is repeated in halves from the state before it") {
  RecoveredRun run(small_plan(4));
  const auto batches = run.plan.open_batches(run.plan.data);
  const Batch batch = batches->next();
  std::vector<int64_t> splits;
  run.recovery.retry_if_out_of_memory([&] {
    splits.push_back(run.outcome.micro_split);
    for (const at::Tensor& gradient : run.step.parameters().gradients())
      CHECK((!gradient.defined() || gradient.abs().sum().item<float>() == 0));
    run.step.micro_step(batch);
    if (splits.size() < 3) run_out_of_memory();
  });
  CHECK(splits == std::vector<int64_t>{1, 2, 4});
  CHECK(run.reopened == 2);
  CHECK(run.started_again == 0);
}

TEST_CASE("what is not a lack of memory passes through") {
  RecoveredRun run(small_plan(4));
  CHECK_THROWS_AS(run.recovery.retry_if_out_of_memory([] { throw UserError("a bad sample", ExitCode::data); }),
                  UserError);
  CHECK(run.outcome.micro_split == 1);
  CHECK(run.reopened == 0);
}

TEST_CASE("the first step that is not finite ends what is delivered") {
  Plan plan = small_plan(4);
  plan.train.on_nonfinite = OnNonfinite::skip;
  RecoveredRun run(std::move(plan));
  for (int64_t step = 1; step <= 3; ++step) run.step.guard().begin(step, 8 * (step - 1));
  run.outcome.steps = 3;
  run.recovery.deliver({row_of(1, 0.5), row_of(2, std::numeric_limits<double>::quiet_NaN()), row_of(3, 0.25)});
  REQUIRE(run.rows.rows.size() == 2);  // the skipped step is told too; the one after it wrote nothing
  REQUIRE(run.rows.events.size() == 1);
  CHECK(run.rows.events[0].step == 2);
  CHECK(run.outcome.skipped_steps == 1);
  CHECK(run.outcome.steps == 2);
  CHECK(run.outcome.samples == 16);
  CHECK(run.started_again == 1);
}
