// Memory over every optimization: categories that add up, and no leak or spike where there is none.
#include "device/device_allocator.h"
#include "support/captured_log.h"
#include "support/catch.h"
#include "support/plans.h"
#include "support/turned_on.h"

namespace memory_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

Recipe recipe_of_memory() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model.stem = StemKind::cifar;
  recipe.data.size = 48;
  recipe.data.batch_size = 4;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 8}, RandomHorizontalFlipConfig{},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  recipe.train.max_steps = 9;  // five between the first two and the last two
  recipe.evaluation.at_end = false;
  return recipe;
}

StepTrace trained(const Recipe& recipe) {
  Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  plan.memory_snapshot = true;
  install_counting_allocator();
  if (plan.process.caching_allocator) install_caching_allocator(plan.process.huge_pages);
  MemoryRecorder recorder(at::kCPU);
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped(), {}, make_single_communicator(), &recorder);
  trainer.run();
  CHECK(rows.rows.size() == 9);
  return trainer.outcome().trace;
}

void check_memory(const Recipe& recipe) {
  const StepTrace trace = trained(recipe);
  for (const MemoryLeak& leak : trace.memory_leaks) FAIL_CHECK(leak.text());
  for (const MemorySpike& spike : trace.memory_spikes) FAIL_CHECK(spike.text());
  const MemoryBreakdown& peak = trace.memory.breakdown;
  CHECK(trace.memory.step == 2);
  CHECK(peak[MemoryUse::parameters] >= trace.parameter_bytes);
  CHECK(peak[MemoryUse::optimizer] >= trace.optimizer_bytes);
  CHECK(peak[MemoryUse::gradients] <= trace.gradient_bytes);
  CHECK(peak[MemoryUse::activations] > 0);
}

}  // namespace

TEST_CASE("no plan of the catalogue leaks or spikes, and its peak has the known categories") {
  const CapturedLog log;
  static const std::vector<CatalogueEntry> entries = catalogue();
  for (const CatalogueEntry& entry : entries) DYNAMIC_SECTION(entry.info.name) {
      check_memory(turned_on(recipe_of_memory(), entry));
    }
  DYNAMIC_SECTION("plain") { check_memory(recipe_of_memory()); }
  DYNAMIC_SECTION("all that work together") {
    Recipe recipe = recipe_of_memory();
    recipe.data.num_workers = 2;
    recipe.optimizations.channels_last = recipe.optimizations.set_to_none = true;
    recipe.optimizations.fused_kernels = recipe.optimizations.fused_optimizer = recipe.optimizations.winograd.on = true;
    recipe.optimizations.amp.on = recipe.optimizations.device_preprocess.on = true;
    recipe.optimizer = AdamConfig{};
    recipe.train.on_nonfinite = OnNonfinite::skip;
    check_memory(recipe);
  }
}

}  // namespace memory_tests
