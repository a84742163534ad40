// Forecasts of memory against the memory that a run really holds. tests/cli/test_memory_forecast.py does the same for
// sharded jobs, whose exchanges hold memory too.
#include "train/memory_forecast.h"

#include "base/units.h"
#include "comm/communicator.h"
#include "device/tensor_memory.h"
#include "recipe/memory_remedies.h"
#include "recipe/recipe_io.h"
#include "support/catch.h"
#include "support/plans.h"
#include "support/programs.h"
#include "support/temporary_folder.h"
#include "support/turned_on.h"

#include <ATen/Version.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace memory_forecast_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

struct Case {
  std::string name;
  std::function<void(Recipe&)> change;
  int64_t ranks = 1;
};

void use_cifar_stem(Recipe& r) {
  r.model.stem = StemKind::cifar;
  r.data.transforms.front() = ResizeConfig{.shorter_side = 32};
}
void use_adam(Recipe& r) { r.optimizer = AdamConfig{}; }
void use_amp(Recipe& r) { r.optimizations.amp.on = true; }
void use_amp_float16(Recipe& r) { r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 64}}; }
void use_bfloat16_weights(Recipe& r) { r.optimizations.amp.on = r.optimizations.precision.on = true; }
void accumulate(Recipe& r) { r.train.gradient_accumulation_steps = 4; }
void skip_nonfinite(Recipe& r) { r.train.on_nonfinite = OnNonfinite::skip; }
void use_mlp(Recipe& r) {
  r.model = {.name = ModelKind::mlp, .hidden = {512, 512}, .dropout = 0.5};
  r.data.transforms.front() = ResizeConfig{.shorter_side = 16};
  r.data.size = r.data.batch_size = 1024;
}
void use_vit(Recipe& r) { r.model = {.name = ModelKind::vit, .patch = 8, .layers = 4, .heads = 4, .width = 256}; }
/// The logits are the largest tensor.
void use_gpt2(Recipe& r) {
  r.model = {.name = ModelKind::gpt2, .layers = 2, .heads = 4, .width = 128, .context = 64, .vocabulary = 5000};
  r.data.dataset = DatasetKind::synthetic;
  r.data.transforms.clear();
}
/// Where a library's work space is larger than all else. A batch of one image, as that space is measured.
void use_depthwise(Recipe& r) {
  use_program(r, "depthwise");
  use_images_of_16(r);
  r.data.size = r.data.batch_size = 1;
  r.optimizations.channels_last = true;
}
auto both(std::function<void(Recipe&)> first, std::function<void(Recipe&)> second) {
  return [=](Recipe& r) { first(r), second(r); };
}
auto named(ModelKind kind) {
  return [kind](Recipe& r) { r.model.name = kind; };
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"plain", [](Recipe&) {}},
      {"cifar stem, label smoothing", both(use_cifar_stem, [](Recipe& r) { r.train.label_smoothing = 0.1; })},
      {"resnet34, device_preprocess",
       both(named(ModelKind::resnet34), [](Recipe& r) { r.optimizations.device_preprocess.on = true; })},
      {"resnet50, amp", both(named(ModelKind::resnet50), use_amp)},
      {"mlp", use_mlp},
      {"mlp, amp, adam", both(use_mlp, both(use_amp, use_adam))},
      {"vit", use_vit},
      {"vit with dropout, amp", both([](Recipe& r) { use_vit(r), r.model.dropout = 0.1; }, use_amp)},
      {"gpt2", use_gpt2},
      {"gpt2, amp, fused_optimizer",
       both(use_gpt2, both(use_amp, [](Recipe& r) { r.optimizations.fused_optimizer = true; }))},
      {"gpt2, amp, fp8", both(use_gpt2, both(use_amp, [](Recipe& r) { r.optimizations.fp8.on = true; }))},
      {"gpt2, amp, fp8 with a history", both(use_gpt2, both(use_amp,
                                                            [](Recipe& r) {
                                                              r.optimizations.fp8 = {true, {.amax_history = 3}};
                                                            }))},
      {"gpt2, attention math", both(use_gpt2, [](Recipe& r) { r.optimizations.attention = AttentionKernel::math; })},
      {"gpt2 with dropout", both(use_gpt2, [](Recipe& r) { r.model.dropout = 0.1; })},
      {"gpt2, every block computed again",
       both(use_gpt2, [](Recipe& r) { r.model.layers = 8, r.optimizations.activation_checkpointing.on = true; })},
      {"gpt2 with dropout, products kept", both(use_gpt2,
                                                [](Recipe& r) {
                                                  r.model.layers = 8, r.model.dropout = 0.1;
                                                  r.optimizations.activation_checkpointing = {
                                                      true, {.policy = activation_checkpointing::Policy::selective}};
                                                })},
      {"amp float16", use_amp_float16},
      {"fused_kernels", [](Recipe& r) { r.optimizations.fused_kernels = true; }},
      {"fused_kernels, amp", both(use_amp, [](Recipe& r) { r.optimizations.fused_kernels = true; })},
      {"winograd", both(use_cifar_stem, [](Recipe& r) { r.optimizations.winograd.on = true; })},
      {"channels_last", [](Recipe& r) { r.optimizations.channels_last = true; }},
      {"convolutions of groups, channels_last", use_depthwise},
      {"convolutions of groups, channels_last, amp", both(use_depthwise, use_amp)},
      {"set_to_none", [](Recipe& r) { r.optimizations.set_to_none = true; }},
      {"fused_optimizer, adam", both(use_adam, [](Recipe& r) { r.optimizations.fused_optimizer = true; })},
      {"fused_optimizer, amp", both(use_amp, [](Recipe& r) { r.optimizations.fused_optimizer = true; })},
      {"accumulation, set_to_none", both(accumulate, [](Recipe& r) { r.optimizations.set_to_none = true; })},
      {"skip, adam, clipping", both(both(use_adam, skip_nonfinite), [](Recipe& r) { r.train.max_grad_norm = 1; })},
      {"gpt2, bfloat16 weights, adam", both(use_gpt2, both(use_adam, use_bfloat16_weights))},
      {"two ranks, amp", use_amp, 2},
      {"two ranks, bfloat16 weights", use_bfloat16_weights, 2},
      {"two ranks, bfloat16 gradients", [](Recipe& r) { r.parallel.gradient_dtype = WireType::bfloat16; }, 2}};
  return all;
}

/// ResNet-18 on images of 64 × 64: activations are several times the parameters.
Recipe recipe_of(const Case& one) {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.data.size = 256;
  recipe.data.batch_size = one.ranks > 1 ? 16 : 32;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 64}, NormalizeConfig{}};
  recipe.train.max_steps = 2;
  recipe.checkpoint.at_end = false;
  recipe.evaluation.at_end = false;
  one.change(recipe);
  return recipe;
}

/// Trains two steps as one rank of the case's, whose exchanges take no time, and returns the second one's peak.
MemoryPeak measured(const Plan& plan) {
  Rows rows;
  MemoryRecorder recorder(at::kCPU);
  const int64_t before = recorder.live().total();  // left by other tests
  const BackendGuard settings(plan.backend);
  std::shared_ptr<Communicator> communicator = make_single_communicator();
  if (plan.position.ranks > 1) communicator = make_free_communicator(plan.position);
  Trainer trainer(plan, {}, rows, never_stopped(), {}, communicator, &recorder);
  trainer.run();
  MemoryPeak peak = trainer.outcome().trace.memory;
  peak.breakdown[MemoryUse::other] -= before;
  return peak;
}

Plan plan_for(const Recipe& recipe, int64_t ranks) {
  return make_plan(recipe, Machine{.cpu = "test", .cores = 2}, {.ranks = ranks, .local_ranks = ranks});
}

/// The recipe with overrides as on the command line.
Recipe with_words(const Recipe& recipe, const std::string& words) {
  const TemporaryFolder folder;
  std::ofstream(folder / "recipe.yaml") << recipe_yaml(recipe);
  std::vector<std::string> overrides;
  std::istringstream parts(words);
  for (std::string word; parts >> word;) overrides.push_back(word);
  return load_recipe({.files = {folder / "recipe.yaml"}, .overrides = overrides}, 2).recipe;
}

double mebibytes(const MemoryBreakdown& breakdown, MemoryUse use) { return mib(breakdown[use]); }

/// What stays for longer than an operation.
double kept_bytes(const MemoryBreakdown& breakdown) {
  return static_cast<double>(breakdown.total() - breakdown[MemoryUse::other]);
}

/// oneDNN's copies within an operation are not forecast. Their size depends on the CPU's instructions: with AVX2 alone
/// several copies of a weight are a quarter of what so small a job needs.
bool library_copies_are_small() {
  std::ifstream cpu("/proc/cpuinfo");
  const std::string facts{std::istreambuf_iterator<char>(cpu), std::istreambuf_iterator<char>()};
  return at::get_cpu_capability() == "AVX512" && facts.find("amx_tile") == std::string::npos;
}

}  // namespace

TEST_CASE("forecasts are within a tenth of the measured peak") {
  install_counting_allocator();
  for (const Case& one : cases()) {
    const Plan plan = plan_for(recipe_of(one), one.ranks);
    const MemoryPeak forecast = forecast_memory(plan), found = measured(plan);
    const double error = static_cast<double>(forecast.breakdown.total()) / static_cast<double>(found.breakdown.total());
    std::string text = fmt::format("{:<28} {:>7.1f} MiB forecast ({}), {:>7.1f} measured ({}), {:+.1f} %;", one.name,
                                   mib(forecast.breakdown.total()), forecast.where, mib(found.breakdown.total()),
                                   found.where, 100 * (error - 1));
    for (const MemoryUse use : kMemoryUses)
      text += fmt::format(" {} {:.1f}/{:.1f}", name_of(use), mebibytes(forecast.breakdown, use),
                          mebibytes(found.breakdown, use));
    INFO(text);
    if (std::getenv("SHOW_FORECASTS")) std::puts(text.c_str());
    CHECK(error < 1.1);
    if (library_copies_are_small())
      CHECK(error > 0.9);
    else  // large copies also move the peak to another unit
      CHECK(kept_bytes(forecast.breakdown) == Approx(kept_bytes(found.breakdown)).epsilon(0.2));
  }
}

TEST_CASE("the memory of every switch can be forecast, on CPUs and GPUs") {
  const auto gpus = assume(Machine{.cpu = "test"}, "gpus=2,arch=sm_90,memory_gib=80");
  for (const CatalogueEntry& entry : catalogue()) {
    INFO(entry.info.name);
    Recipe recipe = turned_on(recipe_of(cases().front()), entry);
    CHECK(forecast_memory(plan_for(recipe, 2)).breakdown.total() > 0);
    recipe.device = "auto";
    recipe.data.pin_memory |= recipe.data.non_blocking;
    CHECK(forecast_memory(make_plan(recipe, gpus.machine, gpus.position)).breakdown.total() > 0);
  }
  Recipe recipe = recipe_of(cases().front());
  recipe.parallel.sync_batch_norm = true;
  CHECK(forecast_memory(plan_for(recipe, 2)).breakdown.total() > 0);
  recipe.parallel.sync_batch_norm = false;
  recipe.parallel.async_updates.staleness = 1;
  CHECK(forecast_memory(plan_for(recipe, 2)).breakdown.total() > 0);
}

TEST_CASE("a forecast allocates nothing on the host") {
  install_counting_allocator();
  Recipe recipe = recipe_of(cases().front());
  recipe.data.batch_size = 1 << 14;
  recipe.data.size = 1 << 14;
  recipe.data.memory_limit = Bytes{int64_t{1} << 40};
  const Plan plan = plan_for(recipe, 1);
  reset_cpu_tensor_peak();
  const int64_t before = cpu_tensor_memory()->live;
  const MemoryPeak forecast = forecast_memory(plan);
  CHECK(forecast.breakdown.total() > int64_t{20} << 30);
  CHECK(cpu_tensor_memory()->peak - before < 1 << 20);
  CHECK(cpu_tensor_memory()->live == before);
}

TEST_CASE("remedies of a plan that does not fit are plans that fit") {
  Recipe recipe = recipe_of(cases().front());
  use_cifar_stem(recipe);
  Plan plan = plan_for(recipe, 2);
  CHECK(make_memory_forecast(recipe, plan).fits());  // an unknown capacity
  const int64_t bytes = forecast_memory(plan).breakdown.total();
  plan.machine.memory_bytes = 2 * bytes;  // two ranks share it
  CHECK(make_memory_forecast(recipe, plan).fits());
  plan.machine.memory_bytes = 2 * (bytes * 7 / 10);
  const MemoryForecast tight = make_memory_forecast(recipe, plan);
  CHECK(!tight.fits());
  REQUIRE(tight.remedies.size() >= 2);
  for (const std::string& remedy : tight.remedies) {
    INFO(remedy);
    Plan changed = plan_for(with_words(recipe, remedy.substr(0, remedy.find(" ("))), 2);
    changed.machine.memory_bytes = plan.machine.memory_bytes;
    CHECK(make_memory_forecast(recipe, changed).fits());
  }
  plan.machine.memory_bytes = 2 << 20;  // less than the parameters
  CHECK(make_memory_forecast(recipe, plan).remedies.empty());
}

TEST_CASE("sharded gradients exist as a whole for three units at most") {
  Recipe recipe = recipe_of(cases().front());
  use_mlp(recipe);
  recipe.model.hidden.assign(16, 512);
  recipe.data.batch_size = 1;
  for (const auto strategy : {ShardingStrategy::zero2, ShardingStrategy::zero3}) {
    recipe.parallel.sharding_strategy = strategy;
    const Plan plan = plan_for(recipe, 2);
    constexpr int64_t kLargest = 3 * 16 * 16 * 512 * 4;  // of the first layer
    CHECK(forecast_memory(plan).breakdown[MemoryUse::gradients] < plan.model.parameter_bytes() / 2 + 3 * kLargest);
  }
}

TEST_CASE("if no switch alone makes a job fit, several together do") {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model = {.name = ModelKind::gpt2, .layers = 6, .heads = 4, .width = 128, .context = 128, .vocabulary = 256};
  recipe.data.dataset = DatasetKind::synthetic;
  recipe.data.batch_size = 1;  // cannot be made smaller
  recipe.optimizer = AdamWConfig{};
  Plan plan = plan_for(recipe, 1);
  const auto needed = [&](const std::string& words) {
    return forecast_memory(plan_for(with_words(recipe, words), 1)).breakdown.total() * 10 / 9;
  };
  const std::string precision = "optimizations.amp=true optimizations.precision=true",
                    checkpointing = "optimizations.activation_checkpointing=true";
  plan.machine.memory_bytes = needed(precision + " " + checkpointing) + 1024;
  for (const std::string& alone : {precision, checkpointing}) REQUIRE(needed(alone) > plan.machine.memory_bytes);
  const MemoryForecast tight = make_memory_forecast(recipe, plan);
  REQUIRE(tight.remedies.size() == 1);
  CHECK(needed(tight.remedies[0]) <= plan.machine.memory_bytes);
}

}  // namespace memory_forecast_tests
