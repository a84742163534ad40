#include "device/device_allocator.h"
#include "device/tensor.h"
#include "support/catch.h"

#include <map>
#include <thread>
#include <vector>

using namespace trainopt;

namespace {

struct Heard : MemoryListener {
  void allocated(const void* address, int64_t bytes, const MemoryLabel& label) override {
    live[address] = bytes;
    labels.push_back(label);
  }
  void released(const void* address, int64_t bytes) override {
    const auto block = live.find(address);
    if (block == live.end()) return;  // allocated before
    sizes_agree = sizes_agree && block->second == bytes;
    live.erase(block);
  }
  std::map<const void*, int64_t> live;
  std::vector<MemoryLabel> labels;
  bool sizes_agree = true;
};

}  // namespace

TEST_CASE("tensors are counted in the bytes that they asked for, with their peak") {
  install_counting_allocator();
  const int64_t before = cpu_tensor_memory()->live;
  reset_cpu_tensor_peak();
  {
    const at::Tensor odd = at::empty({3, 333}, at::kByte);
    CHECK(cpu_tensor_memory()->live == before + 999);
    CHECK(reinterpret_cast<uintptr_t>(odd.data_ptr()) % 64 == 0);
    const at::Tensor view = odd.slice(0, 0, 1);  // no memory of its own
    CHECK(cpu_tensor_memory()->live == before + 999);
    at::empty({1 << 20}, at::kFloat);
  }
  CHECK(cpu_tensor_memory()->live == before);
  CHECK(cpu_tensor_memory()->peak == before + 999 + (4 << 20));
  reset_cpu_tensor_peak();
  CHECK(cpu_tensor_memory()->peak == before);
}

TEST_CASE("blocks of the caching allocator count with the tensor's size, not the block's") {
  CachingAllocator allocator(false);
  const int64_t before = cpu_tensor_memory()->live;
  for (int round = 0; round < 2; ++round) {  // a new block, and a cached one that is larger
    const size_t bytes = (size_t{1} << 20) - static_cast<size_t>(round) * 1000;
    const auto block = allocator.allocate(bytes);
    CHECK(cpu_tensor_memory()->live == before + static_cast<int64_t>(bytes));
  }
  CHECK(allocator.stats().cache_hits == 1);
  CHECK(cpu_tensor_memory()->live == before);
}

TEST_CASE("concurrent allocations are all counted") {
  install_counting_allocator();
  const int64_t before = cpu_tensor_memory()->live;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      for (int64_t n = 1; n <= 500; ++n) at::empty({n}, at::kFloat);
    });
  for (auto& thread : threads) thread.join();
  CHECK(cpu_tensor_memory()->live == before);
}

TEST_CASE("a listener hears of every thread's allocations under that thread's innermost label") {
  install_counting_allocator();
  const std::string unit = "layer1";
  Heard heard;
  {
    const ListenToMemory listening(at::kCPU, heard);
    at::Tensor kept = at::empty({100}, at::kByte);
    {
      const MemoryScope outer({.use = MemoryUse::activations, .phase = "forward"});
      const MemoryScope inner({.use = MemoryUse::activations, .phase = "forward", .unit = &unit});
      kept = at::empty({200}, at::kByte);  // releases the first
      std::thread([] {
        const MemoryScope loading({.use = MemoryUse::batches});
        at::empty({300}, at::kByte);
      }).join();
    }
    at::empty({400}, at::kByte);
    REQUIRE(heard.labels.size() == 4);
    CHECK(heard.labels[0] == MemoryLabel{});
    CHECK(heard.labels[1].unit == &unit);
    CHECK(heard.labels[2].use == MemoryUse::batches);
    CHECK(heard.labels[3] == MemoryLabel{});  // the scopes have ended
    REQUIRE(heard.live.size() == 1);
    CHECK(heard.live.begin()->second == 200);
  }
  at::empty({500}, at::kByte);
  CHECK(heard.labels.size() == 4);  // no longer listening
  CHECK(heard.sizes_agree);
}
