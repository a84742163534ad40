#include "debugging/debug.h"
#include "debugging/inject.h"
#include "device/differentiable.h"
#include "device/tensor.h"
#include "support/catch.h"
#include "support/planted_units.h"
#include "support/resuming.h"

#include <ATen/record_function.h>

#include <limits>

using namespace trainopt;
using namespace trainopt::test;

namespace {

class NonfiniteEvents : public Rows {
 public:
  void not_finite(const NonfiniteStep& event) override { events.push_back(event); }
  std::vector<NonfiniteStep> events;
};

Plan checked_plan(int64_t steps = 6, OnNonfinite policy = OnNonfinite::abort) {
  Plan plan = small_plan(steps);
  plan.model.config.dropout = 0;
  plan.train.on_nonfinite = policy;
  add_debug(plan, {.anomaly = true});
  return plan;
}

struct Failure {
  std::string message;
  ExitCode code = ExitCode::done;
  std::vector<NonfiniteStep> events;
};

Failure failure_of(const Plan& plan) {
  NonfiniteEvents events;
  Trainer trainer(plan, {}, events, never_stopped());
  Failure failure;
  try {
    trainer.run();
  } catch (const UserError& error) {
    failure.message = error.what();
    failure.code = error.code();
  }
  failure.events = events.events;
  return failure;
}

void overwrite_unseen(const at::Tensor& values, int64_t count) {
  std::fill_n(values.data_ptr<float>(), count, std::numeric_limits<float>::quiet_NaN());
}

/// An identity with a gradient of its own, which writes memory without libtorch's operations, as a kernel does.
Change own_function(const std::string& label, bool bad_forward, bool bad_backward) {
  return [=](const at::Tensor& x) {
    return differentiable(
        {x},
        [&](std::vector<at::Tensor>&) {
          std::optional<at::RecordFunction> posted;
          if (!label.empty()) posted.emplace(at::RecordScope::FUNCTION).before(std::string_view(label));
          at::Tensor output = x.detach().clone();
          if (bad_forward) overwrite_unseen(output, output.numel());
          return output;
        },
        [=](const BackwardCall& call) {
          at::Tensor gradient = call.gradient.clone();
          if (bad_backward) overwrite_unseen(gradient, gradient.numel());
          return std::vector<at::Tensor>{gradient};
        });
  };
}

/// An identity whose backward fails.
at::Tensor failing(const at::Tensor& x, const std::function<void(const at::Tensor&)>& fail) {
  return differentiable(
      {x}, [&](std::vector<at::Tensor>&) { return x.detach().clone(); },
      [fail](const BackwardCall& call) {
        fail(call.gradient);
        return std::vector<at::Tensor>{call.gradient};
      });
}

class SpoilingAverage : public NoAverage {
 public:
  void update(ParameterStore& parameters, const at::Tensor&) override {
    if (++updates_ == 2) overwrite_unseen(parameters.parameters().at(1).second, 1);
  }

 private:
  int64_t updates_ = 0;
};

}  // namespace

TEST_CASE("a NaN of the forward is named with step, operation and unit") {
  Plan plan = checked_plan();
  plant(plan, "layers.1", only_in(3, [](const at::Tensor& x) { return x.mul(0).sub(1).log().mul(2); }));
  const Failure failure = failure_of(plan);
  CHECK(failure.code == ExitCode::diverged);
  CHECK_THAT(
      failure.message,
      ContainsSubstring("loss is not finite: step 3") &&
          ContainsSubstring("; it began in step 3 in aten::log in forward of unit layers.1: 80 of 80 values of its "
                            "result [8, 10] are not finite; its inputs [8, 10] were finite; lower optimizer.lr"));
  REQUIRE(failure.events.size() == 1);
  CHECK_THAT(failure.events[0].began, ContainsSubstring("unit layers.1"));
}

TEST_CASE("a NaN of the backward is named with its forward operation and unit, in the step in which it began") {
  Plan plan = checked_plan();
  plant(plan, "layers.0", only_in(4, [](const at::Tensor& x) { return at::pow(x.abs() * 0, 0.5); }));
  const Failure failure = failure_of(plan);
  CHECK(failure.code == ExitCode::diverged);
  CHECK_THAT(failure.message, ContainsSubstring("the gradients are not finite: step 4") &&
                                  ContainsSubstring("it began in step 4 in aten::") &&
                                  ContainsSubstring("in the backward of aten::pow of unit layers.0"));
}

TEST_CASE("values that this project's own kernels write are attributed to their unit") {
  const auto began = [](const Change& change) {
    Plan plan = checked_plan();
    plant(plan, "layers.0", only_in(2, change));
    const Failure failure = failure_of(plan);
    CHECK(failure.code == ExitCode::diverged);
    return failure.message;
  };
  CHECK_THAT(began(own_function("trainopt::planted", true, false)),
             ContainsSubstring("in step 2 in forward of unit layers.0, in trainopt::planted: 128 of 128 values"));
  const Change returned = [&](const at::Tensor& x) {  // operations that return their input are not to blame
    return own_function("trainopt::planted", true, false)(x).to(at::kFloat).contiguous();
  };
  CHECK_THAT(began(returned), ContainsSubstring("of unit layers.0, in trainopt::planted: 128 of 128 values"));
  CHECK_THAT(began(own_function("", true, false)),
             ContainsSubstring("of unit layers.0, in an operation that libtorch does not see: 128 of"));
  CHECK_THAT(
      began(own_function("trainopt::planted", false, true)),
      ContainsSubstring("in step 2 in the backward of trainopt::planted of unit layers.0: 128 of 128 values of the "
                        "gradient [8, 16] are not finite"));
  CHECK_THAT(began(own_function("", false, true)),
             ContainsSubstring("in the backward of unit layers.0 (a function with a gradient of its own)"));
}

TEST_CASE("values that were not finite before the step are not blamed on an operation") {
  Plan batch = checked_plan();
  inject(batch, {parse_injection("nan@3")});
  CHECK_THAT(failure_of(batch).message,
             ContainsSubstring("it began before step 3: 1536 of 1536 values of the batch's input [8, 3, 8, 8]"));
  Plan weights = checked_plan();
  weights.average.fill("test", "", [](const BuildContext&) { return std::make_unique<SpoilingAverage>(); });
  CHECK_THAT(failure_of(weights).message,
             ContainsSubstring("it began before step 3: 1 of 16 values of the parameter layers.0.bias [16]"));
  Plan unseen = checked_plan();
  inject(unseen, {parse_injection("gradient@3")});
  CHECK_THAT(failure_of(unseen).message,
             ContainsSubstring("no operation of step 3 was seen to make finite values non-finite"));
}

TEST_CASE("the update in which values begin is named, also if the loss shows it only in the next step") {
  Plan norm = checked_plan();
  norm.train.max_grad_norm = 1;
  plant(norm, "layers.1", [](const at::Tensor& x) { return x * 1e20; });
  CHECK_THAT(
      failure_of(norm).message,
      ContainsSubstring("gradient norm inf; it began in step 1 in aten::linalg_vector_norm in update outside the "
                        "units: 1 of 1 values"));
  Plan weights = checked_plan();
  std::get<SgdConfig>(weights.optimizer_config).lr = 3e38;
  plant(weights, "layers.1", [](const at::Tensor& x) { return x * 1e4; });
  CHECK_THAT(failure_of(weights).message, ContainsSubstring("loss is not finite: step 2") &&
                                              ContainsSubstring("it began in step 1 in aten::add_ in update"));
}

TEST_CASE("skip goes on and names every non-finite step; rerun names it both times") {
  Plan plan = checked_plan(8, OnNonfinite::skip);
  plant(plan, "layers.0", only_in(3, [](const at::Tensor& x) { return x.mul(0).sub(1).log(); }));
  plant(plan, "layers.1", only_in(6, [](const at::Tensor& x) { return x.div(0); }));
  const Failure skipped = failure_of(plan);
  CHECK(skipped.code == ExitCode::done);
  REQUIRE(skipped.events.size() == 2);
  CHECK_THAT(skipped.events[0].began, ContainsSubstring("in step 3 in aten::log in forward of unit layers.0"));
  CHECK_THAT(skipped.events[1].began, ContainsSubstring("in step 6 in aten::div in forward of unit layers.1"));

  Plan again = checked_plan(6, OnNonfinite::rerun);
  plant(again, "layers.1", [](const at::Tensor& x) { return x.mul(0).sub(1).log(); });
  const Failure reproduced = failure_of(again);
  CHECK(reproduced.code == ExitCode::diverged);
  CHECK_THAT(reproduced.message,
             ContainsSubstring("reproduced when repeated") && ContainsSubstring("it began in step 1 in aten::log"));
}

TEST_CASE("an exception in backward ends the run and names the forward operation and unit") {
  Plan plan = checked_plan();
  plant(plan, "layers.0", only_in(2, [](const at::Tensor& x) {
          return failing(x.abs(), [](const at::Tensor& gradient) { at::mm(gradient, gradient); });
        }));
  const Failure failure = failure_of(plan);
  CHECK(failure.code == ExitCode::bug);
  CHECK_THAT(failure.message, ContainsSubstring("backward failed in aten::mm in the backward of unit layers.0") &&
                                  ContainsSubstring("cannot be multiplied"));
  Plan own = checked_plan();
  plant(own, "layers.1", [](const at::Tensor& x) {
    return failing(x, [](const at::Tensor&) { throw std::runtime_error("out of luck"); });
  });
  CHECK_THAT(failure_of(own).message, ContainsSubstring("of unit layers.1") && ContainsSubstring("out of luck"));
}

TEST_CASE("running out of memory and errors that say what to do stay what they are") {
  Plan memory = checked_plan();
  plant(memory, "layers.1", only_in(2, [](const at::Tensor& x) {
          return failing(x, [](const at::Tensor&) { C10_THROW_ERROR(OutOfMemoryError, "tried to allocate a lot. "); });
        }));
  CHECK(failure_of(memory).code == ExitCode::done);  // repeated in smaller pieces
  Plan lost = checked_plan();
  plant(lost, "layers.1", [](const at::Tensor& x) {
    return failing(x, [](const at::Tensor&) { throw UserError("rank 1 is gone", ExitCode::peer); });
  });
  const Failure failure = failure_of(lost);
  CHECK(failure.code == ExitCode::peer);
  CHECK(failure.message == "rank 1 is gone");
}

TEST_CASE("the checks change no bit, also not together") {
  const auto trained = [](const DebugConfig& checks) {
    Plan plan = small_plan(8);
    plan.train.max_grad_norm = 1;
    add_debug(plan, checks);
    return train_part(plan);
  };
  const PartialRun plain = trained({});
  for (const DebugConfig& checks : {DebugConfig{.find_syncs = true}, DebugConfig{.anomaly = true},
                                    DebugConfig{.find_syncs = true, .anomaly = true}}) {
    const PartialRun checked = trained(checks);
    CHECK(checked.losses == plain.losses);
    CHECK(first_difference(checked.state, plain.state) == "");
    CHECK(checked.outcome.trace.calls("aten::aminmax") == 0);  // the checks' own operations are in no receipt
    CHECK(checked.outcome.trace.hidden_waits.has_value() == checks.find_syncs);
    if (checks.find_syncs) CHECK(checked.outcome.trace.hidden_waits->empty());
  }
}

TEST_CASE("steps that are replayed cannot be checked") {
  Plan plan = small_plan(2);
  plan.replays_steps = true;
  CHECK_THROWS_WITH(add_debug(plan, {.anomaly = true}),
                    ContainsSubstring("debug.anomaly") && ContainsSubstring("replay"));
}

TEST_CASE("two trainers of one plan each name their own step") {
  Plan plan = checked_plan();
  plant(plan, "layers.1", only_in(3, [](const at::Tensor& x) { return x.div(0); }));
  NonfiniteEvents first_events, second_events;
  Trainer first(plan, {}, first_events, never_stopped()), second(plan, {}, second_events, never_stopped());
  const auto turn = [](Trainer& trainer) {
    trainer.step();
    trainer.pause();
  };
  turn(first);
  turn(second);
  turn(first);
  CHECK_THROWS_WITH(turn(first), ContainsSubstring("it began in step 3"));
  turn(second);
  CHECK_THROWS_WITH(turn(second), ContainsSubstring("it began in step 3"));
}
