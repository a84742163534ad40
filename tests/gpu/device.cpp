#include "device/device.h"

#include "device/memory.h"
#include "device/pinned.h"
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
  CHECK(memory_stats(at::kCUDA)->allocated >= 1 << 20);
  CHECK(memory_stats(at::kCUDA)->reserved >= memory_stats(at::kCUDA)->allocated);
  CHECK(memory_stats(at::kCUDA)->peak_reserved >= memory_stats(at::kCUDA)->reserved);
}
