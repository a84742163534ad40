#include "train/trainer.h"
#include "device/tensor.h"
#include "support/catch.h"
#include "metrics/phases.h"
#include "support/plans.h"

#include <thread>

using namespace trainopt;
using namespace trainopt::test;

namespace {

std::vector<double> losses_of(const Plan& plan) {
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  return rows.losses();
}

}  // namespace

TEST_CASE("the loss of the plain trainer falls") {
  Rows rows;
  Plan plan = small_plan(60);
  plan.model.config.dropout = 0;
  plan.data.dataset = make_fake_cifar10(16, plan.seed);  // two batches seen thirty times, so the loss must fall
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  REQUIRE(rows.rows.size() == 60);
  CHECK(rows.losses().back() < 0.7 * rows.losses().front());
  CHECK(trainer.outcome().samples == 480);
  CHECK(trainer.outcome().time_to_first_step_s.has_value());
  CHECK(rows.rows[1][Metric::epoch] == Approx(1.0));
  CHECK_FALSE(rows.rows[1][Metric::grad_norm].has_value());  // not measured, which is not 0
}

TEST_CASE("every step is split into forward, backward and update") {
  Rows rows;
  Plan plan = small_plan(3);
  plan.data.accumulation = 2;
  plan.data.batch_size = 4;
  Trainer(plan, {}, rows, never_stopped()).run();
  for (const StepRecord& row : rows.rows) {
    for (const Metric phase : PhaseSums::kPhases) CHECK(row[phase].value() > 0);
    CHECK(*row[Metric::forward_ms] + *row[Metric::backward_ms] + *row[Metric::update_ms] <=
          *row[Metric::device_ms] * 1.001);
  }
}

TEST_CASE("if steps are replayed, only the update is timed by itself") {
  Rows rows;
  Plan plan = small_plan(2);
  plan.replays_steps = true;
  Trainer(plan, {}, rows, never_stopped()).run();
  CHECK_FALSE(rows.rows[1][Metric::forward_ms].has_value());
  CHECK_FALSE(rows.rows[1][Metric::backward_ms].has_value());
  CHECK(rows.rows[1][Metric::update_ms].value() > 0);
}

TEST_CASE("two trainers that take turns compute the same numbers as each alone") {
  const Plan first = small_plan(12, 3), second = small_plan(12, 4);
  Rows a, b;
  Trainer one(first, {}, a, never_stopped()), other(second, {}, b, never_stopped());
  while (!one.finished()) {
    one.step();
    other.step();
  }
  CHECK(a.losses() == losses_of(first));
  CHECK(b.losses() == losses_of(second));
  CHECK(a.losses() != b.losses());
}

TEST_CASE("a paused trainer continues with the same numbers, and the pause counts towards no step's time") {
  Plan plan = small_plan(12);
  plan.loader.num_workers = 2;
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  for (int step = 0; step < 12; ++step) {
    trainer.step();
    if (step % 3 != 2) continue;
    trainer.pause();
    CHECK(rows.rows.size() == static_cast<size_t>(step + 1));  // a pause delivers all records
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  CHECK(rows.losses() == losses_of(small_plan(12)));
  for (const StepRecord& row : rows.rows)
    if (row.step() % 3 == 1 && row.step() > 1)
      CHECK(milliseconds_between(rows.rows[static_cast<size_t>(row.step()) - 2].ended, row.began) >= 199);
}

TEST_CASE("micro-batches give the same training as the whole batch") {
  Plan uninterrupted = small_plan(10);
  uninterrupted.model.config.dropout = 0;
  uninterrupted.train.max_grad_norm = 0.5;
  Plan cut = uninterrupted;
  cut.data.batch_size = 2;
  cut.data.accumulation = 4;
  Rows a, b;
  Trainer(uninterrupted, {}, a, never_stopped()).run();
  Trainer(cut, {}, b, never_stopped()).run();
  for (size_t i = 0; i < a.rows.size(); ++i) {
    CHECK(*b.rows[i][Metric::loss] == Approx(*a.rows[i][Metric::loss]).epsilon(1e-5));
    CHECK(*b.rows[i][Metric::grad_norm] == Approx(*a.rows[i][Metric::grad_norm]).epsilon(1e-4));
  }
}

TEST_CASE("the loss of a short last step is the mean over its own samples") {
  Plan plan = small_plan(3);
  plan.data.drop_last = false;
  plan.data.shuffle = false;
  plan.model.config.dropout = 0;
  plan.optimizer_config = SgdConfig{.lr = 0};
  plan.data.dataset = make_fake_cifar10(20, plan.seed);  // 8 + 8 + 4
  Plan cut = plan;
  cut.data.batch_size = 4;
  cut.data.accumulation = 2;  // the last step has one micro-batch instead of two
  const auto a = losses_of(plan), b = losses_of(cut);
  REQUIRE(a.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(b[i] == Approx(a[i]).epsilon(1e-5));
}

TEST_CASE("a non-finite loss ends the run with an error that names the step") {
  Plan plan = small_plan(50);
  plan.optimizer_config = SgdConfig{.lr = 1e30};
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  try {
    trainer.run();
    FAIL("the run did not end");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::diverged);
    CHECK_THAT(error.what(), ContainsSubstring("step"));
  }
  CHECK(trainer.outcome().steps < 50);
}

TEST_CASE("a stop request ends the run after the step") {
  std::atomic<int> stop{0};
  class Stopper : public Rows {
   public:
    explicit Stopper(std::atomic<int>& s) : stop(s) {}
    void step_done(const StepRecord& row) override {
      Rows::step_done(row);
      if (row.step() == 3) stop = 15;
    }
    std::atomic<int>& stop;
  } rows(stop);
  Trainer trainer(small_plan(50), {}, rows, stop);
  trainer.run();
  CHECK(trainer.outcome().steps == 3);
  CHECK(trainer.outcome().stopped_by_signal == 15);
}

TEST_CASE("a stop request ends an evaluation at the next batch, and the evaluation is not recorded") {
  std::atomic<int> stop{0};
  int batches = 0;
  class Stopper : public ClassificationTask {
   public:
    Stopper(std::atomic<int>& s, int& n) : ClassificationTask(0), stop(s), batches(n) {}
    TaskOutput evaluation_loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                               const ForwardContext& context) const override {
      if (++batches == 3) stop = 15;
      return ClassificationTask::evaluation_loss(model, input, target, context);
    }
    std::atomic<int>& stop;
    int& batches;
  };
  Plan plan = small_plan(4);
  plan.task.fill("test", "stops in an evaluation",
                 [&](const BuildContext&) { return std::make_unique<Stopper>(stop, batches); });
  DataPlan held_out = plan.data;
  held_out.shuffle = held_out.drop_last = false;  // 12 batches
  const bool at_end = GENERATE(true, false);
  plan.evaluation =
      EvaluationPlan{.every_n_steps = at_end ? std::optional<int64_t>() : 2, .at_end = at_end, .data = held_out};
  Rows rows;
  Trainer trainer(plan, {}, rows, stop);
  trainer.run();
  CHECK(batches == 3);
  CHECK(rows.evaluations.empty());
  CHECK_FALSE(trainer.outcome().evaluation.has_value());
  CHECK(trainer.outcome().stopped_by_signal == 15);
  CHECK(trainer.outcome().steps == (at_end ? 4 : 2));
}

TEST_CASE("evaluation sees every sample once and does not affect training") {
  Plan plan = small_plan(6);
  DataPlan held_out = plan.data;
  held_out.shuffle = held_out.drop_last = false;
  held_out.batch_size = 7;  // does not divide 96
  Plan evaluated = plan;
  evaluated.evaluation = EvaluationPlan{.every_n_steps = 2, .at_end = true, .data = held_out};
  Rows rows;
  Trainer trainer(evaluated, {}, rows, never_stopped());
  trainer.run();
  REQUIRE(rows.evaluations.size() == 3);  // steps 2, 4 and 6; the end is step 6
  CHECK(rows.evaluations.back().samples == 96);
  CHECK(rows.losses() == losses_of(plan));
  // The evaluation after the observed step, the second, is not part of it.
  CHECK(trainer.outcome().trace.step == 2);
  CHECK(trainer.outcome().trace.calls("aten::addmm") == 2);
}
