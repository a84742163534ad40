// Where memory is on a GPU, its forecast, and the checks that look for waits and NaNs there.
#include "device/memory.h"
#include "device/tensor.h"
#include "recipes.h"
#include "support/catch.h"
#include "support/planted_units.h"
#include "train/observe/memory_report.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

Recipe memory_recipe() {
  Recipe recipe = small_recipe("cuda");
  recipe.data.batch_size = 32;
  recipe.data.transforms[0] = ResizeConfig{.exact = {64, 64}};
  recipe.train.max_steps = 2;
  return recipe;
}

StepTrace trace_of(const Plan& plan, MemoryRecorder* recorder = nullptr) {
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped(), {}, make_single_communicator(), recorder);
  trainer.run();
  return trainer.outcome().trace;
}

}  // namespace

TEST_CASE("the recorded peak is the allocator's, and the forecast is near it") {
  for (const bool amp : {false, true}) {
    Recipe recipe = memory_recipe();
    recipe.optimizations.amp.on = amp;
    const Plan plan = make_plan(recipe, detect_machine());
    MemoryRecorder recorder(plan.device);
    reset_peak_memory(plan.device);
    const MemoryPeak peak = trace_of(plan, &recorder).memory;
    REQUIRE(peak.step == 2);
    const auto counted = static_cast<double>(memory_stats(plan.device)->peak_allocated);
    CHECK(static_cast<double>(peak.breakdown.total()) == Approx(counted).epsilon(0.03));
    const auto forecast = static_cast<double>(forecast_memory(plan).breakdown.total());
    INFO(memory_text(peak));
    // cuBLAS's work space is most of what so small a job holds beside its tensors.
    CHECK(forecast == Approx(static_cast<double>(peak.breakdown.total())).epsilon(0.1).margin(80 << 20));
    CHECK(peak.breakdown[MemoryUse::parameters] > 0);
    CHECK(peak.breakdown[MemoryUse::activations] > 0);
  }
}

TEST_CASE("hidden waits on a GPU are named, and a plan without any has none") {
  Recipe recipe = memory_recipe();
  recipe.data.pin_memory = recipe.data.non_blocking = true;
  recipe.debug.find_syncs = true;
  const auto clean = trace_of(make_plan(recipe, detect_machine())).hidden_waits;
  REQUIRE(clean);
  for (const HiddenWait& wait : *clean) FAIL_CHECK(wait.operation << " in " << wait.where << ": " << wait.why);
  Plan plan = make_plan(recipe, detect_machine());
  plant(plan, "layer1.0", [](const at::Tensor& x) {
    const float first = x.flatten()[0].item<float>();
    return x.add(at::tensor(first - first).to(x.device()));  // a copy from pageable memory
  });
  const auto waits = trace_of(plan).hidden_waits;
  REQUIRE(waits);
  const auto named = [&](const std::string& operation) {
    return std::any_of(waits->begin(), waits->end(),
                       [&](const HiddenWait& wait) { return wait.operation == operation && wait.unit == "layer1.0"; });
  };
  CHECK((named("aten::item") || named("aten::_local_scalar_dense")));
  CHECK((named("aten::to") || named("aten::_to_copy") || named("aten::copy_")));
}

TEST_CASE("a NaN on a GPU is named with its unit") {
  Recipe recipe = memory_recipe();
  recipe.debug.anomaly = true;
  Plan plan = make_plan(recipe, detect_machine());
  plant(plan, "layer2.0", only_in(2, [](const at::Tensor& x) { return x.div(0).mul(0); }));
  CHECK_THROWS_WITH(trace_of(plan), ContainsSubstring("in forward of unit layer2.0"));
}

TEST_CASE("a snapshot of a GPU's memory is not empty") {
  record_gpu_memory_history(1000);
  const at::Tensor tensor = at::empty({1 << 20}, at::TensorOptions(at::kCUDA));
  CHECK_THAT(gpu_memory_snapshot(), ContainsSubstring("device_traces"));
  end_gpu_memory_history();
}
