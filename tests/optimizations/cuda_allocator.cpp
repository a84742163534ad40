// The allocator itself needs a GPU; these tests cover the settings, which libtorch reads without one, the refusals and
// the wording of the receipt.
#include "optimizations/cuda_allocator/cuda_allocator.h"

#include "device/device.h"
#include "device/device_allocator.h"
#include "recipe/make_plan.h"
#include "support/catch.h"
#include "support/cuda_without_driver.h"

#include <c10/core/AllocatorConfig.h>

namespace cuda_allocator_tests {

using namespace trainopt;

namespace {

using Libtorch = c10::CachingAllocator::AcceleratorAllocatorConfig;

Plan plan_with(const cuda_allocator::Config& config, const std::string& device = "cuda") {
  Recipe recipe;
  recipe.device = device;
  recipe.optimizations.cuda_allocator = {true, config};
  return make_plan(recipe, assume(Machine{}, "gpus=1,arch=sm_80").machine);
}

std::vector<std::pair<std::string, std::string>> refusals(const cuda_allocator::Config& config) {
  Recipe recipe;
  recipe.optimizations.cuda_allocator = {true, config};
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [key, message] : check_optimizations(recipe)) all.emplace_back(key, message);
  return all;
}

/// Makes libtorch parse the settings, as it would a variable of the environment.
void give_libtorch(const std::string& settings) { c10::CachingAllocator::setAllocatorSettings(settings); }

constexpr int64_t kMiB = 1 << 20;

StepTrace step_with(const std::string& settings, MemoryStats memory = {}) {
  memory.allocated = 120 * kMiB;
  memory.reserved = 1000 * kMiB;
  memory.inactive_split = 35 * kMiB;
  memory.peak_allocated = 960 * kMiB;
  memory.peak_reserved = 1000 * kMiB;
  if (memory.device_allocs == 0) memory.device_allocs = 31;
  StepTrace trace;
  trace.step = 2;
  trace.device_memory = memory;
  trace.device_allocator_settings = settings;
  return trace;
}

}  // namespace

TEST_CASE("libtorch understands the settings that the switch makes") {
  give_libtorch(cuda_allocator::settings_text({}));
  CHECK(Libtorch::use_expandable_segments());
  CHECK(device_allocator_settings() == "expandable_segments:True");
  give_libtorch(cuda_allocator::settings_text(
      {.expandable_segments = false, .max_split_size_mb = 20, .roundup_power2_divisions = 2}));
  CHECK_FALSE(Libtorch::use_expandable_segments());
  CHECK(Libtorch::max_split_size() == 20 * kMiB);
  CHECK(Libtorch::roundup_power2_divisions(3 * kMiB) == 2);
  CHECK(Libtorch::garbage_collection_threshold() == 0);
  if (!cuda_is_open()) return;  // the limit that the threshold needs is an option of CUDA's allocator
  for (const double threshold : {1e-7, 0.8, 0.9999999}) {
    give_libtorch(
        cuda_allocator::settings_text({.expandable_segments = false, .garbage_collection_threshold = threshold}));
    CHECK(Libtorch::garbage_collection_threshold() == threshold);
  }
}

TEST_CASE("a threshold for collecting garbage comes with the limit without which libtorch ignores it") {
  const std::string text =
      cuda_allocator::settings_text({.expandable_segments = false, .garbage_collection_threshold = 0.8});
  CHECK(text == "expandable_segments:False,garbage_collection_threshold:0.8,per_process_memory_fraction:0.9999");
}

TEST_CASE("libtorch refuses values outside the switch's bounds") {
  const auto text = [](const cuda_allocator::Config& config) { return cuda_allocator::settings_text(config); };
  CHECK_THROWS(give_libtorch(text({.expandable_segments = false, .max_split_size_mb = 19})));
  CHECK_THROWS(give_libtorch(text({.roundup_power2_divisions = 3})));
  CHECK_THROWS(give_libtorch(text({.expandable_segments = false, .garbage_collection_threshold = 1.0})));
  CHECK_THROWS(give_libtorch(text({.expandable_segments = false, .garbage_collection_threshold = 0.0})));
}

TEST_CASE("settings that libtorch would refuse or ignore are refused") {
  const std::string key = "optimizations.cuda_allocator.";
  CHECK(refusals({}).empty());
  CHECK(refusals({.roundup_power2_divisions = 16}).empty());
  CHECK(refusals({.expandable_segments = false, .max_split_size_mb = 64, .garbage_collection_threshold = 0.8}).empty());
  CHECK(refusals({.roundup_power2_divisions = 12}) ==
        std::vector{std::pair{key + "roundup_power2_divisions", std::string("must be a power of two: 12")}});
  CHECK(refusals({.max_split_size_mb = 64}) ==
        std::vector{
            std::pair{key + "max_split_size_mb",
                      std::string("blocks of expandable segments are always split; add expandable_segments: false")}});
  CHECK(refusals({.garbage_collection_threshold = 0.8}) ==
        std::vector{std::pair{key + "garbage_collection_threshold",
                              std::string("expandable segments are never collected; add expandable_segments: false")}});
  CHECK(refusals({.expandable_segments = false}).front().first == key + "expandable_segments");
}

TEST_CASE("the settings belong to the process, and only to a plan for a GPU") {
  const Plan plan = plan_with({.roundup_power2_divisions = 8});
  REQUIRE(plan.switches.size() == 1);
  CHECK(plan.switches.front().outcome.text ==
        "libtorch's GPU allocator has the settings expandable_segments:True,roundup_power2_divisions:8");
  for (const auto name : kDeviceAllocatorVariables)
    CHECK(plan.process.environment.at(std::string(name)) == "expandable_segments:True,roundup_power2_divisions:8");
  CHECK(plan.process != plan_with({}).process);

  const Plan on_cpu = plan_with({}, "cpu");
  CHECK_FALSE(on_cpu.switches.front().outcome.has_effect);
  CHECK_THAT(on_cpu.switches.front().outcome.text, ContainsSubstring("this plan runs on the CPU"));
  CHECK(on_cpu.process.environment.empty());
}

TEST_CASE("the receipt shows retries, requests, segments and fragmentation") {
  const MakeReceipt receipt = plan_with({}).switches.front().outcome.receipt;
  const Receipt used = receipt(step_with("expandable_segments:True"));
  CHECK(used.observed ==
        "0 allocation retries, 31 requests to the driver, 0 fixed segments; 4.0 % fragmentation (tensors used at most "
        "960.0 MiB of 1000.0 MiB reserved); at the step's end 88.0 % of the reserved memory was free, 35.0 MiB of it "
        "in parts of split blocks");
  CHECK(used.effective);
  CHECK(used.reason.empty());
  CHECK_THAT(receipt(step_with("expandable_segments:True", {.device_allocs = 1, .retries = 1})).observed,
             Catch::Matchers::StartsWith("1 allocation retry, 1 request to the driver"));
}

TEST_CASE("the receipt exposes settings that did not reach libtorch's allocator") {
  const MakeReceipt receipt = plan_with({}).switches.front().outcome.receipt;
  const Receipt other = receipt(step_with("max_split_size_mb:64"));
  CHECK_FALSE(other.effective);
  CHECK(other.reason == "libtorch has other settings: 'max_split_size_mb:64'");
  const Receipt fixed = receipt(step_with("expandable_segments:True", {.segments = 3}));
  CHECK_FALSE(fixed.effective);
  CHECK(fixed.reason == "some memory is in segments that cannot grow");
  StepTrace unused;
  unused.step = 2;
  unused.device_allocator_settings = "expandable_segments:True";
  CHECK(receipt(unused).reason == "the step used no memory of libtorch's allocator");

  const cuda_allocator::Config rounded{.expandable_segments = false, .roundup_power2_divisions = 4};
  const Receipt fine = plan_with(rounded).switches.front().outcome.receipt(
      step_with("expandable_segments:False,roundup_power2_divisions:4", {.segments = 3}));
  CHECK(fine.effective);
}

}  // namespace cuda_allocator_tests
