// What was live at a step's peak, and what leaks and spikes.
#include "device/differentiable.h"
#include "support/captured_log.h"
#include "support/catch.h"
#include "support/plans.h"
#include "train/observe/memory_recorder.h"
#include "train/observe/memory_report.h"
#include "train/observe/memory_snapshot.h"
#include "train/observe/observed_step.h"
#include "train/observe/step_trace.h"

#include <sys/mman.h>

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// A unit that does something with memory in each of its forward passes in training.
class ForgetfulUnit : public WrappedUnit {
 public:
  using Act = std::function<void(int64_t call, std::vector<at::Tensor>& kept)>;
  ForgetfulUnit(std::unique_ptr<Unit> inner, Act act) : WrappedUnit(std::move(inner)), act_(std::move(act)) {}
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    if (context.training) act_(++calls_, kept_);
    return inner_->forward(input, context);
  }

 private:
  Act act_;
  std::vector<at::Tensor> kept_;
  int64_t calls_ = 0;
};

Plan plan_of_units(int64_t steps) {
  Plan plan = small_plan(steps);
  plan.model.config.hidden = {32, 16};
  plan.model.config.dropout = 0;
  return plan;
}

/// The plan with `act` in the forward of the unit `name`.
Plan plan_with_unit(Plan plan, const std::string& name, const ForgetfulUnit::Act& act) {
  plan.memory_snapshot = true;
  plan.runner.wrap("test", "", [=](const BuildContext& context, std::unique_ptr<StepRunner> inner) {
    context.model->wrap_units([&](std::unique_ptr<Unit> unit) -> std::unique_ptr<Unit> {
      if (unit->name() != name) return unit;
      return std::make_unique<ForgetfulUnit>(std::move(unit), act);
    });
    return inner;
  });
  return plan;
}

StepTrace trace_of(const Plan& plan, MemoryRecorder& recorder) {
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped(), {}, make_single_communicator(), &recorder);
  trainer.run();
  return trainer.outcome().trace;
}

StepTrace trace_of(const Plan& plan) {
  install_counting_allocator();
  MemoryRecorder recorder(at::kCPU);
  return trace_of(plan, recorder);
}

}  // namespace

TEST_CASE("page faults are counted in the steps after the first ten, and not between steps") {
  constexpr size_t kPages = 512, kPage = 4096;
  const auto touch = [] {
    void* memory = ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    ::madvise(memory, kPages * kPage, MADV_NOHUGEPAGE);
    for (size_t page = 0; page < kPages; ++page) static_cast<volatile char*>(memory)[page * kPage] = 1;
    ::munmap(memory, kPages * kPage);
  };
  StepMemory memory(nullptr, false);
  StepTrace trace;
  for (int64_t step = 1; step <= 13; ++step) {
    memory.begin_step(step);
    if (step > 10) touch();
    memory.end_step(step, step == 2, trace);
    for (int i = 0; i < 4; ++i) touch();
    if (step <= 10) CHECK(trace.later_page_faults == 0);
  }
  CHECK(trace.later_steps == 3);
  CHECK(trace.later_page_faults >= int64_t{3 * kPages});
  CHECK(trace.later_page_faults < int64_t{6 * kPages});
}

TEST_CASE("the peak holds what was live, filed by label, and follows relabelled tensors") {
  install_counting_allocator();
  const at::Tensor before = at::empty({1000}, at::kByte);
  MemoryRecorder recorder(at::kCPU);
  const int64_t base = recorder.live().total();
  CHECK(base >= 1000);
  recorder.begin_step(1);
  at::Tensor weights, gradient;
  {
    const MemoryScope scope({.use = MemoryUse::parameters});
    weights = at::empty({500}, at::kByte);
  }
  const std::string* unit = recorder.unit("layer1");
  {
    const MemoryScope scope({.use = MemoryUse::activations, .phase = "forward", .unit = unit});
    const at::Tensor kept = at::empty({300}, at::kByte);
    at::empty({30}, at::kByte);
    const MemoryScope backward({.use = MemoryUse::other, .phase = "backward"});
    recorder.set_backward_unit(unit);
    gradient = at::empty({200}, at::kByte);
  }
  const at::Tensor later = at::empty({10}, at::kByte);  // below the peak
  recorder.relabel({gradient, later, at::Tensor()}, MemoryUse::gradients);
  const MemoryPeak peak = recorder.peak();
  CHECK(peak.step == 1);
  CHECK(peak.where == "backward of layer1");
  CHECK(peak.breakdown[MemoryUse::parameters] == 500);
  CHECK(peak.breakdown[MemoryUse::activations] == 300);
  CHECK(peak.breakdown[MemoryUse::gradients] == 200);  // not `later`, which did not exist at the peak
  CHECK(peak.breakdown[MemoryUse::other] == base);
  CHECK(peak.breakdown.activations == std::vector<std::pair<std::string, int64_t>>{{"layer1", 300}});
  CHECK(recorder.live()[MemoryUse::gradients] == 210);
  CHECK_THAT(memory_text(peak), ContainsSubstring("at the peak of step 1, in backward of layer1: ") &&
                                    ContainsSubstring("parameters 500 B"));
  recorder.begin_step(2);  // nothing was allocated since
  CHECK(recorder.peak().breakdown.total() == base + 710);
}

TEST_CASE("a trainer's categories are its parameters', gradients' and optimizer's bytes, and add up to the peak") {
  for (const ClearGradients clear : {ClearGradients::zero, ClearGradients::drop}) {
    Plan plan = plan_of_units(3);
    plan.optimizer_config = AdamConfig{};
    plan.clear_gradients = clear;
    install_counting_allocator();
    MemoryRecorder recorder(at::kCPU);
    const int64_t before = recorder.live().total();
    const StepTrace trace = trace_of(plan, recorder);
    const MemoryBreakdown& peak = trace.memory.breakdown;
    CHECK(trace.memory.step == 2);
    CHECK(peak[MemoryUse::parameters] == trace.parameter_bytes);
    CHECK(peak[MemoryUse::optimizer] == trace.optimizer_bytes + 8);  // Adam's count of updates
    if (clear == ClearGradients::zero) CHECK(peak[MemoryUse::gradients] == trace.gradient_bytes);
    CHECK(peak[MemoryUse::activations] > 0);
    CHECK(peak[MemoryUse::batches] >= 8 * 3 * 8 * 8 * 4);
    CHECK(peak.total() >= before + trace.parameter_bytes + trace.gradient_bytes + trace.optimizer_bytes);
    int64_t of_units = 0;
    for (const auto& [unit, bytes] : peak.activations) of_units += bytes;
    CHECK(of_units == peak[MemoryUse::activations]);
    const MemoryForecast forecast{.peak = {.step = 2, .where = "update", .breakdown = peak}};
    CHECK(memory_json(trace, forecast)["peak_bytes"] == peak.total());
    CHECK(memory_json(trace, forecast)["forecast_error_pct"] == 0);
    CHECK_THAT(forecast_receipt(trace.memory, forecast),
               ContainsSubstring(" in update, 0.0 % above what was measured"));
    CHECK(memory_json(trace, std::nullopt)["forecast_bytes"].is_null());
    CHECK(!recorder.listens());  // it costs nothing after the observed step
  }
}

TEST_CASE("the peak is the one that the allocator counted") {
  Plan plan = plan_of_units(2);
  plan.data.batch_size = 64;
  plan.data.dataset = make_fake_cifar10(256, 3);
  const MemoryPeak peak = trace_of(plan).memory;
  REQUIRE(peak.step == 2);
  // Without the recorder: the second step alone, between two readings of the counter.
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.step();
  reset_cpu_tensor_peak();
  trainer.step();
  CHECK(static_cast<double>(peak.breakdown.total()) ==
        Approx(static_cast<double>(cpu_tensor_memory()->peak)).epsilon(0.03));
}

TEST_CASE("a tensor leaked in each step is found, with its unit and size") {
  const CapturedLog log;
  const auto leak = [](int64_t, std::vector<at::Tensor>& kept) { kept.push_back(at::empty({5000}, at::kByte)); };
  const StepTrace trace = trace_of(plan_with_unit(plan_of_units(12), "layers.1", leak));
  REQUIRE(trace.memory_leaks.size() == 1);
  CHECK(trace.memory_leaks[0].where == "forward of layers.1");
  CHECK(trace.memory_leaks[0].bytes_per_step == 5000);
  CHECK(trace.memory_leaks[0].steps == 8);  // of twelve, without the first and last two
  CHECK_THAT(log.text(), ContainsSubstring("4.9 KiB per step, allocated in forward of layers.1 and never released"));
  CHECK(trace.memory_spikes.empty());
}

TEST_CASE("what is released later, or kept once, is no leak") {
  const auto ring = [](int64_t call, std::vector<at::Tensor>& kept) {
    kept.resize(3);
    kept[static_cast<size_t>(call % 3)] = at::empty({5000}, at::kByte);
  };
  const auto once = [](int64_t call, std::vector<at::Tensor>& kept) {
    if (call == 5) kept.push_back(at::empty({1 << 21}, at::kByte));
  };
  for (const ForgetfulUnit::Act& act : {ForgetfulUnit::Act(ring), ForgetfulUnit::Act(once)}) {
    const CapturedLog log;
    CHECK(trace_of(plan_with_unit(plan_of_units(12), "layers.1", act)).memory_leaks.empty());
  }
}

TEST_CASE("a spike is found, with its step and unit") {
  const CapturedLog log;
  const auto spike = [](int64_t call, std::vector<at::Tensor>&) { at::empty({call == 9 ? 3 << 20 : 3000}, at::kByte); };
  const StepTrace trace = trace_of(plan_with_unit(plan_of_units(12), "layers.2", spike));
  REQUIRE(trace.memory_spikes.size() == 1);
  const MemorySpike& found = trace.memory_spikes[0];
  CHECK(found.step == 9);
  CHECK(found.where == "forward of layers.2");
  CHECK(found.peak_bytes - found.usual_bytes > (2 << 20));
  CHECK(found.grown_bytes > (2 << 20));
  CHECK(trace.memory_leaks.empty());
}

TEST_CASE("a snapshot covers the latest events and everything live") {
  install_counting_allocator();
  MemoryRecorder recorder(at::kCPU, /*history=*/4);
  const at::Tensor kept = at::empty({1000}, at::kByte);
  for (int i = 0; i < 3; ++i) at::empty({10}, at::kByte);
  const auto history = recorder.history();
  REQUIRE(history.size() == 4);
  CHECK(history.front().bytes == 10);
  CHECK(history.back().bytes == -10);
  CHECK(recorder.contents().blocks.at(kept.data_ptr()).bytes == 1000);
  CHECK_THAT(memory_snapshot(recorder), ContainsSubstring("free_completed") && ContainsSubstring("requested_size"));
}
