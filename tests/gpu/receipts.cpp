// Tests that every switch that only a GPU supports takes effect in a run.
#include "device/memory.h"
#include "recipes.h"
#include "support/catch.h"

#include <c10/core/AllocatorConfig.h>

using namespace trainopt;
using namespace trainopt::test;

namespace {

void check_effective(const Finished& finished, const std::set<std::string>& names) {
  std::set<std::string> effective;
  for (const auto& [name, requested, receipt] : finished.receipts) {
    INFO(name << ": " << receipt.observed << " / " << receipt.reason);
    CHECK(receipt.effective);
    effective.insert(name);
  }
  for (const auto& name : names) CHECK(effective.contains(name));
}

bool has_tf32_and_bfloat16() { return detect_machine().sm >= 80; }

}  // namespace

TEST_CASE("page-locked batches are copied concurrently with the step") {
  Recipe recipe = small_recipe("cuda");
  recipe.data.num_workers = 2;
  recipe.data.pin_memory = recipe.data.non_blocking = true;
  const Finished finished = train(recipe);
  check_effective(finished, {"pin_memory", "non_blocking"});
  CHECK(finished.seen.loader.pinned_bytes_copied > 0);
  CHECK(finished.seen.loader.pinned_bytes_copied == finished.seen.loader.bytes_copied);
  CHECK(finished.seen.loader.overlapped_copies > 0);
  CHECK(finished.seen.loader.copies.ms > 0);
  CHECK(finished.seen.loader.copies.exposed_ms <= finished.seen.loader.copies.ms);
  CHECK(std::any_of(finished.rows.rows.begin(), finished.rows.rows.end(),
                    [](const StepRecord& row) { return row[Metric::copy_ms].value_or(0) > 0; }));
}

TEST_CASE("without the switches nothing is page-locked or copied concurrently") {
  const Finished finished = train(small_recipe("cuda"));
  CHECK(finished.seen.loader.bytes_copied > 0);
  CHECK(finished.seen.loader.pinned_bytes_copied == 0);
  CHECK(finished.seen.loader.overlapped_copies == 0);
  CHECK_FALSE(finished.seen.backend.allow_tf32);
  for (const StepRecord& row : finished.rows.rows) {
    CHECK(*row[Metric::device_ms] > 0);
    CHECK(*row[Metric::memory_allocated_mib] > 0);
    CHECK(*row[Metric::memory_active_mib] >= *row[Metric::memory_allocated_mib]);
    CHECK(*row[Metric::memory_peak_pct] > 0);
    CHECK(*row[Metric::memory_peak_pct] <= 100);
    CHECK(*row[Metric::alloc_retries] == 0);
    CHECK(*row[Metric::device_allocs] > 0);
    CHECK(*row[Metric::device_frees] <= *row[Metric::device_allocs]);
  }
}

TEST_CASE("tf32, cudnn_benchmark and channels_last take effect") {
  Recipe recipe = small_recipe("cuda");
  recipe.optimizations.tf32 = has_tf32_and_bfloat16();
  recipe.optimizations.cudnn_benchmark = recipe.optimizations.channels_last = true;
  check_effective(train(recipe), {"cudnn_benchmark", "channels_last"});
}

TEST_CASE("a data set on the device takes effect, and only the placement of each sample is copied") {
  Recipe recipe = small_recipe("cuda");
  recipe.data.cache.kind = CacheKind::device;
  const Finished finished = train(recipe);
  check_effective(finished, {"cache"});
  CHECK(finished.seen.loader.bytes_copied == finished.seen.loader.bytes_delivered);
  CHECK(finished.seen.loader.bytes_copied <= 32 * recipe.data.batch_size);
}

TEST_CASE("amp, device_preprocess, set_to_none and fused_optimizer take effect") {
  Recipe recipe = small_recipe("cuda");
  recipe.optimizations.amp = {true, {.dtype = has_tf32_and_bfloat16() ? amp::Type::bfloat16 : amp::Type::float16}};
  recipe.optimizations.device_preprocess = {true, {.resize = true}};
  recipe.optimizations.set_to_none = recipe.optimizations.fused_optimizer = true;
  check_effective(train(recipe), {"amp", "device_preprocess", "set_to_none", "fused_optimizer"});
}

TEST_CASE("with cuda_allocator all memory is in segments that can grow") {
  Recipe recipe = small_recipe("cuda");
  recipe.optimizations.cuda_allocator.on = true;
  release_cached_memory(at::kCUDA);
  const MemoryStats before = memory_stats(at::kCUDA).value();  // other tests of this process may hold memory
  const std::string settings = cuda_allocator::settings_text({});
  c10::CachingAllocator::setAllocatorSettings(
      settings);  // the program sets them in the environment, before CUDA starts
  const Finished finished = train(recipe);
  c10::CachingAllocator::setAllocatorSettings("expandable_segments:False");
  CHECK(finished.seen.device_allocator_settings == settings);
  CHECK(finished.seen.device_memory.device_allocs > before.device_allocs);
  CHECK(finished.seen.device_memory.segments <= before.segments);
  if (before.segments == 0) check_effective(finished, {"cuda_allocator"});
  release_cached_memory(at::kCUDA);
}

TEST_CASE("float16 reports its loss scale") {
  Recipe recipe = small_recipe("cuda");
  recipe.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 1024}};
  CHECK(train(recipe).rows.rows.front()[Metric::loss_scale] == 1024.0);
}
