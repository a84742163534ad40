#include "device/device_allocator.h"
#include "support/catch.h"

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

using namespace trainopt;

TEST_CASE("a freed block is reused only for a request of nearly its size") {
  CachingAllocator allocator(true);
  const size_t size = size_t{40} << 20;
  void* first = nullptr;
  {
    const auto block = allocator.allocate(size);
    first = block.get();
    std::memset(first, 1, size);
  }
  CHECK(allocator.allocate(size).get() == first);
  CHECK(allocator.allocate(size - size / 10).get() == first);
  CHECK(allocator.allocate(size / 2).get() != first);
  CHECK(allocator.stats().requests == 4);
  CHECK(allocator.stats().cache_hits == 2);
  CHECK(allocator.stats().mapped_bytes >= static_cast<int64_t>(size + size / 2));
  CHECK(allocator.stats().mapped_bytes <= static_cast<int64_t>(size + size / 2) + (int64_t{4} << 20));
  CHECK(reinterpret_cast<uintptr_t>(first) % 64 == 0);
}

TEST_CASE("small blocks are not cached, and raw allocations can be freed") {
  CachingAllocator allocator(false);
  const auto block = allocator.allocate(1000);
  std::memset(block.get(), 1, 1000);
  void* raw = allocator.raw_allocate(5 << 20);  // as oneDNN allocates and frees
  std::memset(raw, 1, 5 << 20);
  allocator.raw_deallocate(raw);
  CHECK(allocator.allocate(0).get() == nullptr);
  CHECK(allocator.stats().requests == 1);
}

TEST_CASE("concurrent threads never get the same block") {
  CachingAllocator allocator(false);
  std::vector<std::thread> threads;
  std::atomic<int> mixed{0};
  for (int id = 1; id <= 4; ++id)
    threads.emplace_back([&, id] {
      for (int round = 0; round < 200; ++round) {
        const size_t size = CachingAllocator::kMinCachedBytes * static_cast<size_t>(1 + (round * id) % 5);
        const auto block = allocator.allocate(size);
        std::memset(block.get(), id, size);
        std::this_thread::yield();
        const auto* bytes = static_cast<const unsigned char*>(block.get());
        if (bytes[0] != id || bytes[size / 2] != id || bytes[size - 1] != id) ++mixed;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(mixed == 0);
}
