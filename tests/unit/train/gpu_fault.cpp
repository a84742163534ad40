// Errors of CUDA after which nothing works any more, in a step: one message, nothing retried, nothing freed.
#include "debugging/inject.h"
#include "device/gpu_error.h"
#include "support/captured_log.h"
#include "support/catch.h"
#include "support/cuda_without_driver.h"
#include "support/ranks.h"
#include "support/resuming.h"
#include "support/temporary_folder.h"

#include <mutex>

using namespace trainopt;
using namespace trainopt::test;

namespace {

Plan plan_with_fault(const std::string& fault) {
  Plan plan = small_plan(6);
  plan.machine.gpu = "NVIDIA H100";
  plan.machine.gpu_uuid = "GPU-5b0c";
  inject(plan, {parse_injection(fault)});
  return plan;
}

/// As libtorch throws it.
[[noreturn]] void throw_illegal_access() {
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 700,
                              "CUDA error: an illegal memory access was encountered");
}

/// What the trainer throws; it must not end in another way.
GpuLost thrown_by(const std::function<void()>& work) {
  try {
    work();
  } catch (const GpuLost& lost) {
    return lost;
  }
  FAIL("no GpuLost was thrown");
  std::abort();
}

/// Counts how often it is destroyed.
class CountingRunner : public StepRunner {
 public:
  CountingRunner(std::unique_ptr<StepRunner> inner, int& destroyed) : inner_(std::move(inner)), destroyed_(destroyed) {}
  ~CountingRunner() override { ++destroyed_; }
  at::Tensor micro_step(const StepBody& body, const Batch& micro) override { return inner_->micro_step(body, micro); }
  at::Tensor update_step(const StepBody& body) override { return inner_->update_step(body); }
  bool drop_state(bool permanently) override { return inner_->drop_state(permanently); }

 private:
  std::unique_ptr<StepRunner> inner_;
  int& destroyed_;
};

/// Fails where the trainer asks for the tensors to compare over the ranks.
class FailingParameters : public LocalParameters {
 public:
  using LocalParameters::LocalParameters;
  NamedTensors replicated() override { throw_illegal_access(); }
};

Plan counting(Plan plan, int& destroyed) {
  plan.runner.wrap("counted", "counts", [&](const BuildContext&, std::unique_ptr<StepRunner> inner) {
    return std::make_unique<CountingRunner>(std::move(inner), destroyed);
  });
  return plan;
}

}  // namespace

TEST_CASE("a GPU fault ends the run at once with one message that names step, phase and GPU") {
  if (!cuda_is_open()) return;
  for (const auto& [fault, words, code] :
       {std::tuple("gpu@3+", "an illegal memory access", ExitCode::bug), {"ecc@3+", "ECC error", ExitCode::hardware}}) {
    const CapturedLog log;
    Rows rows;
    Trainer trainer(plan_with_fault(fault), {}, rows, never_stopped());
    const GpuLost lost = thrown_by([&] { trainer.run(); });
    CHECK(lost.code() == code);
    CHECK_THAT(lost.what(), ContainsSubstring(words) && ContainsSubstring("context is lost") &&
                                ContainsSubstring("in step 3, forward and backward") &&
                                ContainsSubstring("NVIDIA H100, GPU-5b0c"));
    CHECK(trainer.outcome().steps == 2);
    CHECK(trainer.outcome().micro_split == 1);  // not taken for a lack of memory
    CHECK(log.text() == "");
  }
}

TEST_CASE("a trainer that takes turns reports a GPU fault in the same way") {
  if (!cuda_is_open()) return;
  Rows rows;
  Trainer trainer(plan_with_fault("gpu@2"), {}, rows, never_stopped());
  trainer.step();
  const GpuLost lost = thrown_by([&] { trainer.step(); });
  CHECK_THAT(lost.what(), ContainsSubstring("in step 2"));
}

TEST_CASE("after a GPU fault the trainer's parts are not destroyed, because that would make CUDA calls") {
  if (!cuda_is_open()) return;
  static int after_fault = 0, after_success = 0;
  Rows rows;
  {
    Trainer trainer(counting(plan_with_fault("gpu@2"), after_fault), {}, rows, never_stopped());
    thrown_by([&] { trainer.run(); });
  }
  CHECK(after_fault == 0);
  { Trainer(counting(small_plan(2), after_success), {}, rows, never_stopped()).run(); }
  CHECK(after_success == 1);
}

TEST_CASE("a GPU fault while the trainer is built names the phase and GPU, and destroys no part") {
  if (!cuda_is_open()) return;
  static int after_fault = 0, after_error = 0;
  Rows rows;
  const auto failing = [&](int& destroyed, void (*fail)()) {
    Plan plan = counting(plan_with_fault("gpu@9"), destroyed);
    plan.average.wrap("failing", "fails", [fail](const BuildContext&, std::unique_ptr<WeightAverage> inner) {
      return fail(), std::move(inner);
    });
    return plan;
  };
  const GpuLost built =
      thrown_by([&] { Trainer(failing(after_fault, throw_illegal_access), {}, rows, never_stopped()); });
  CHECK_THAT(built.what(), ContainsSubstring("before the first step, building the model, cpu, NVIDIA H100, GPU-5b0c"));
  CHECK_THAT(built.what(), !ContainsSubstring("resume from"));
  Plan plan = counting(plan_with_fault("gpu@9"), after_fault);
  plan.data.wrap_batches = [](std::unique_ptr<BatchSource> inner) { return throw_illegal_access(), std::move(inner); };
  const GpuLost opened = thrown_by([&] { Trainer(plan, {}, rows, never_stopped()); });
  CHECK_THAT(opened.what(), ContainsSubstring("before the first step, opening the data, cpu, NVIDIA H100"));
  CHECK(after_fault == 0);
  const auto fails = [] { throw std::runtime_error("another error"); };
  CHECK_THROWS_WITH(Trainer(failing(after_error, fails), {}, rows, never_stopped()), "another error");
  CHECK(after_error == 1);
}

TEST_CASE("a GPU fault in a caller's use of the tensors names the phase, and destroys no part") {
  if (!cuda_is_open()) return;
  static int destroyed = 0;
  Rows rows;
  {
    Trainer trainer(counting(plan_with_fault("gpu@9"), destroyed), {}, rows, never_stopped());
    trainer.step();
    const GpuLost lost = thrown_by([&] { trainer.during("writing the weights", throw_illegal_access); });
    CHECK_THAT(lost.what(), ContainsSubstring("after step 1, writing the weights, cpu, NVIDIA H100, GPU-5b0c"));
  }
  CHECK(destroyed == 0);
}

TEST_CASE("a GPU fault while the ranks' weights are compared names that phase") {
  if (!cuda_is_open()) return;
  Plan plan = plan_with_fault("gpu@9");
  plan.parallel.check_replicas_every = 1;
  plan.parameters.fill("test", "fails", [](const BuildContext& context) {
    return std::make_unique<FailingParameters>(*context.model, context.plan.clear_gradients);
  });
  const BackendGuard settings(plan.backend);  // once for both threads
  std::mutex mutex;
  std::vector<std::string> said;
  as_ranks(2, [&](Job&, Communicator& communicator) {
    Rows rows;
    auto trainer = std::make_unique<Trainer>(plan, std::filesystem::path(), rows, never_stopped(), Persistence{},
                                             std::shared_ptr<Communicator>(&communicator, [](Communicator*) {}));
    std::string message;
    try {
      trainer->step();
    } catch (const GpuLost& lost) {
      message = lost.what();
    }
    const std::scoped_lock lock(mutex);
    said.push_back(message);
    trainer.reset();  // a process has one trainer that fails, so what it keeps is not locked
  });
  REQUIRE(said.size() == 2);
  for (const auto& message : said)
    CHECK_THAT(message, ContainsSubstring("after step 1, comparing the weights over the ranks, cpu, NVIDIA H100"));
}

TEST_CASE("no checkpoint is saved after a GPU fault, and the earlier one resumes to the same end") {
  if (!cuda_is_open()) return;
  const TemporaryFolder folder;
  {
    CheckpointWriter writer({.root = folder / "checkpoints", .every_n_steps = 2});
    Plan plan = plan_with_fault("gpu@4");
    StopAfter rows(3);  // a stop request is waiting too, which would save
    Trainer trainer(plan, {}, rows, rows.stop, {.checkpoints = &writer});
    const GpuLost lost = thrown_by([&] {
      trainer.step();
      trainer.step();
      trainer.step();
      trainer.step();
    });
    CHECK_THAT(lost.what(), ContainsSubstring("resume from the checkpoint of step 2, and "));
    writer.finish();
    CHECK(writer.saved_step() == 2);
  }
  CHECK(std::filesystem::exists(folder / "checkpoints/step-00000002"));
}
