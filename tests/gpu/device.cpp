#include "device/device.h"

#include "device/memory.h"
#include "device/tensor.h"
#include "support/catch.h"

using namespace trainopt;

TEST_CASE("the facts of a GPU are reported") {
  const DeviceFacts facts = device_facts(at::kCUDA);
  CHECK_THAT(facts.uuid, Catch::Matchers::StartsWith("GPU-") && Catch::Matchers::Matches(".{40}"));
  CHECK(!facts.name.empty());
  CHECK(facts.sm_major >= 7);
  CHECK(facts.memory_bytes > int64_t{1} << 30);
  CHECK(facts.multiprocessors > 0);
  CHECK(facts.pci_bus_id.size() == 16);  // 00000000:1B:00.0
  CHECK(with_index(at::kCUDA).has_index());
}

TEST_CASE("host tensors are page-locked on request") {
  CHECK(host_tensor({16}, at::kFloat, at::MemoryFormat::Contiguous, true).is_pinned());
  CHECK(!host_tensor({16}, at::kFloat).is_pinned());
}

TEST_CASE("the memory figures of the GPU's allocator are consistent") {
  reset_peak_memory(at::kCUDA);
  const at::Tensor held = at::empty({1 << 20}, at::TensorOptions().device(at::kCUDA));
  const MemoryStats stats = memory_stats(at::kCUDA).value();
  CHECK(stats.allocated >= 1 << 20);
  CHECK(stats.active >= stats.allocated);
  CHECK(stats.reserved >= stats.allocated + stats.inactive_split);
  CHECK(stats.peak_reserved >= stats.reserved);
  CHECK(stats.capacity == device_facts(at::kCUDA).memory_bytes);
  CHECK(stats.segments >= 1);
  CHECK(stats.device_allocs >= stats.segments);
}
