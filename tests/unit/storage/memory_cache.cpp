#include "storage/memory_cache.h"

#include "support/catch.h"

#include <atomic>
#include <thread>

using namespace trainopt;

namespace {

/// A file of 1,000 bytes that counts reads and announcements.
class Far : public DataFile {
 public:
  Far(std::atomic<int64_t>& reads, std::atomic<int64_t>& announced)
      : DataFile("far", 1000, "1"), reads_(reads), announced_(announced) {}
  std::span<const uint8_t> read(int64_t offset, int64_t bytes, std::vector<uint8_t>& scratch) const override {
    ++reads_;
    scratch.assign(static_cast<size_t>(bytes), static_cast<uint8_t>(offset));
    return scratch;
  }
  void expect(int64_t, int64_t) const override { ++announced_; }
  int64_t reads_ahead() const override { return 8; }

 private:
  std::atomic<int64_t>&reads_, &announced_;
};

}  // namespace

TEST_CASE("what was read stays in memory, as long as it fits") {
  std::atomic<int64_t> reads = 0, announced = 0;
  MemoryCache cache(250);
  const auto file = cache.through(std::make_unique<Far>(reads, announced));
  CHECK(file->reads_ahead() == 8);
  std::vector<uint8_t> scratch;
  for (int turn = 0; turn < 3; ++turn)
    for (const int64_t offset : {0, 100, 200}) {
      const auto bytes = file->read(offset, 100, scratch);
      REQUIRE(bytes.size() == 100);
      CHECK(bytes[99] == static_cast<uint8_t>(offset));
    }
  CHECK(reads == 3 + 2);  // the third range does not fit
  CHECK(cache.hit_bytes() == 400);
  CHECK(cache.missed_bytes() == 500);
  file->expect(0, 100);
  file->expect(200, 100);
  CHECK(announced == 1);
}

TEST_CASE("what is read once is not kept") {
  std::atomic<int64_t> reads = 0, announced = 0;
  MemoryCache cache(100);
  const auto file = cache.through(std::make_unique<Far>(reads, announced));
  std::vector<uint8_t> scratch;
  CHECK(file->read_once(0, 100, scratch).size() == 100);
  CHECK(cache.missed_bytes() == 0);
  file->read(100, 100, scratch);  // it has all of the memory
  file->read(100, 100, scratch);
  CHECK(reads == 2);
  CHECK(cache.hit_bytes() == 100);
}

TEST_CASE("a file that is closed gives its memory back") {
  std::atomic<int64_t> reads = 0, announced = 0;
  MemoryCache cache(100);
  std::vector<uint8_t> scratch;
  for (int turn = 0; turn < 2; ++turn) {
    const auto file = cache.through(std::make_unique<Far>(reads, announced));
    file->read(0, 100, scratch);
    file->read(0, 100, scratch);
  }
  CHECK(reads == 2);
}

TEST_CASE("threads read through a cache in memory") {
  std::atomic<int64_t> reads = 0, announced = 0, wrong = 0;
  MemoryCache cache(10000);
  const auto file = cache.through(std::make_unique<Far>(reads, announced));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      std::vector<uint8_t> scratch;
      for (int64_t n = 0; n < 2000; ++n) {
        const int64_t offset = n % 90 * 10;
        for (const uint8_t byte : file->read(offset, 10, scratch)) wrong += byte != static_cast<uint8_t>(offset);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(reads <= 4 * 90);
  CHECK(cache.hit_bytes() + cache.missed_bytes() == 4 * 2000 * 10);
}
