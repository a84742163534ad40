// Non-finite steps: what is written and reported, and where the run continues.
#include "debugging/inject.h"
#include "support/catch.h"
#include "support/resuming.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

class Events : public Rows {
 public:
  void not_finite(const NonfiniteStep& event) override { events.push_back(event); }
  std::vector<NonfiniteStep> events;
};

struct Ended {
  PartialRun left;
  std::vector<NonfiniteStep> events;
  std::string error;
  ExitCode code = ExitCode::done;
};

Ended train_with(Plan plan, const std::vector<std::string>& faults) {
  std::vector<Injection> injections;
  for (const auto& fault : faults) injections.push_back(parse_injection(fault));
  inject(plan, injections);
  Events events;
  Trainer trainer(plan, {}, events, never_stopped());
  Ended ended;
  try {
    trainer.run();
  } catch (const UserError& error) {
    ended.error = error.what();
    ended.code = error.code();
  }
  ended.left.losses = events.losses();
  ended.left.outcome = trainer.outcome();
  ended.events = events.events;
  ArchiveWriter archive;
  trainer.save(archive);
  for (const auto& [name, tensor] : archive.tensors()) ended.left.state.emplace_back(name, tensor.detach().clone());
  return ended;
}

Plan plan_with_policy(OnNonfinite policy, int64_t steps = 12) {
  Plan plan = small_plan(steps);
  plan.train.on_nonfinite = policy;
  return plan;
}

/// A model with batch-norm, whose buffers must be restored too.
Plan convolution_plan(OnNonfinite policy, int64_t steps) {
  Plan plan = plan_with_policy(policy, steps);
  plan.model.config = {.name = ModelKind::resnet18, .stem = StemKind::cifar};
  return plan;
}

}  // namespace

TEST_CASE("checking for non-finite values changes no bit") {
  const PartialRun plain = train_part(plan_with_policy(OnNonfinite::abort));
  for (const OnNonfinite policy : {OnNonfinite::skip, OnNonfinite::rerun})
    CHECK(first_difference(train_part(plan_with_policy(policy)).state, plain.state) == "");
}

TEST_CASE("abort ends the run and reports the step's samples") {
  const std::string fault = GENERATE("nan@5", "nan@5+");
  const Ended ended = train_with(plan_with_policy(OnNonfinite::abort), {fault});
  CHECK(ended.code == ExitCode::diverged);
  CHECK_THAT(ended.error, ContainsSubstring("loss is not finite") && ContainsSubstring("step 5"));
  REQUIRE(ended.events.size() == 1);
  CHECK(ended.events[0].step == 5);
  CHECK(ended.events[0].sample_ids.size() == 8);
  CHECK(ended.left.losses.size() == 5);  // including the bad step
}

TEST_CASE("a non-finite step writes nothing: the state is that before the step") {
  const std::string fault = GENERATE("nan@5+", "gradient@5+");
  for (const auto& plan : {plan_with_policy(OnNonfinite::rerun), convolution_plan(OnNonfinite::rerun, 6)}) {
    Plan short_plan = plan;
    short_plan.steps = 4;
    const PartialRun before = train_part(short_plan);
    const Ended ended = train_with(plan, {fault});
    CHECK(ended.code == ExitCode::diverged);
    CHECK_THAT(ended.error, ContainsSubstring("reproduced when repeated"));
    NamedTensors state = ended.left.state, expected = before.state;
    const auto without_random = [](NamedTensors& tensors) {  // the repeated step has drawn random numbers for dropout
      std::erase_if(tensors, [](const auto& entry) { return entry.first.starts_with("random."); });
    };
    without_random(state);
    without_random(expected);
    CHECK(first_difference(state, expected) == "");
  }
}

TEST_CASE("skip continues the run as if only that step's update had been omitted") {
  for (const std::string fault : {"nan@5+", "gradient@5+"}) {
    const Ended ended = train_with(plan_with_policy(OnNonfinite::skip), {fault});
    CHECK(ended.code == ExitCode::done);
    CHECK(ended.left.outcome.skipped_steps == 1);
    CHECK(ended.left.outcome.steps == 12);
    CHECK(ended.left.outcome.samples == 96);
    REQUIRE(ended.left.losses.size() == 12);
    const PartialRun uninterrupted = train_part(plan_with_policy(OnNonfinite::skip));
    for (size_t i = 0; i < 4; ++i) CHECK(ended.left.losses[i] == uninterrupted.losses[i]);
    CHECK(ended.left.losses[5] != uninterrupted.losses[5]);  // same samples, other weights
    CHECK(std::isfinite(ended.left.losses.back()));
    REQUIRE(ended.events.size() == 1);
    CHECK(ended.events[0].action == "the step was skipped");
  }
}

TEST_CASE("skip ends the run after max_skipped_steps") {
  Plan plan = plan_with_policy(OnNonfinite::skip);
  plan.train.max_skipped_steps = 2;
  const Ended ended = train_with(plan, {"nan@3", "gradient@4", "nan@6"});
  CHECK(ended.code == ExitCode::diverged);
  CHECK_THAT(ended.error, ContainsSubstring("max_skipped_steps steps were already skipped: 2"));
  CHECK(ended.events.size() == 3);
}

TEST_CASE("rerun reports a hardware fault only if the repeated step is finite") {
  const Ended once = train_with(plan_with_policy(OnNonfinite::rerun), {"nan@5"});
  CHECK(once.code == ExitCode::hardware);
  CHECK_THAT(once.error, ContainsSubstring("suspected hardware fault") && ContainsSubstring("step 5"));
  const Ended always = train_with(plan_with_policy(OnNonfinite::rerun), {"gradient@5+"});
  CHECK(always.code == ExitCode::diverged);
  CHECK_THAT(always.error, ContainsSubstring("gradients are not finite"));
  REQUIRE(always.events.size() == 2);
  CHECK(always.events[0].sample_ids == always.events[1].sample_ids);
}

TEST_CASE("a repeated step has the same samples, dropout and loss") {
  // The input is corrupted once; the repeated step must match an undisturbed run.
  Plan plan = plan_with_policy(OnNonfinite::rerun);
  const PartialRun uninterrupted = train_part(plan);
  const Ended once = train_with(plan, {"nan@7"});
  CHECK_THAT(once.error, ContainsSubstring(fmt::format("loss {}", uninterrupted.losses[6])));
}

TEST_CASE("non-finite weights are not saved and replace no checkpoint") {
  Plan plan = plan_with_policy(OnNonfinite::abort);
  inject(plan, {parse_injection("gradient@5")});  // the loss of step 5 is fine, its update is not
  const TemporaryFolder folder;
  const bool background = GENERATE(true, false);
  CheckpointWriter writer(
      {.root = folder / "checkpoints", .every_n_steps = 5, .keep_last = 1, .background = background});
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped(), {.checkpoints = &writer});
  ArchiveWriter start;
  trainer.save(start);
  writer.save(start, 1);
  writer.finish();
  CHECK_THROWS_AS(trainer.run(), UserError);
  const auto left = list_checkpoints(folder / "checkpoints");
  REQUIRE(left.size() == 1);
  CHECK(left[0].step == 1);
}
