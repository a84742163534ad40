// Tests the row groups in memory: each is read once, however many threads need it, and let go in time.
#include "data/parquet/held_groups.h"

#include "base/error.h"
#include "support/catch.h"

#include <atomic>
#include <thread>

using namespace trainopt;

namespace {

std::shared_ptr<const RowGroup> group_of(int64_t rows) {
  RowGroup group;
  group.labels.resize(static_cast<size_t>(rows));
  group.images.bytes.resize(1000);
  group.images.ends.assign(static_cast<size_t>(rows), 1000);
  return std::make_shared<const RowGroup>(std::move(group));
}

constexpr int64_t kMuch = int64_t{1} << 30;

}  // namespace

TEST_CASE("a row group is read once and let go when its rows were used") {
  HeldGroups held(kMuch, /*keep=*/false);
  int64_t reads = 0;
  const auto read = [&] { return ++reads, group_of(3); };
  for (const int64_t row : {0, 2, 2, 0}) held.use(7, row, 3, read);
  CHECK(reads == 1);
  CHECK(held.has(7));
  held.use(7, 1, 3, read);
  CHECK_FALSE(held.has(7));
  CHECK(held.bytes() == 0);
  held.use(7, 1, 3, read);
  CHECK(reads == 2);
}

TEST_CASE("a row group of which a filter leaves one row is let go after it") {
  HeldGroups held(kMuch, false);
  held.use(0, 2, 1, [] { return group_of(3); });
  CHECK_FALSE(held.has(0));
}

TEST_CASE("row groups that are kept stay, within the limit") {
  const int64_t one = group_of(1)->bytes();
  HeldGroups held(2 * one, /*keep=*/true);
  const auto read = [] { return group_of(1); };
  held.use(0, 0, 1, read);
  held.use(1, 0, 1, read);
  held.use(0, 0, 1, read);
  CHECK((held.has(0) && held.has(1)));
  held.use(2, 0, 1, read);
  CHECK((held.has(0) && !held.has(1) && held.has(2)));
  CHECK(held.bytes() == 2 * one);
}

TEST_CASE("a damaged row group is not read again, an unreadable file is") {
  HeldGroups held(kMuch, false);
  int64_t reads = 0;
  const auto damaged = [&]() -> std::shared_ptr<const RowGroup> {
    ++reads;
    throw BadSample("damaged");
  };
  CHECK_THROWS_AS(held.use(0, 0, 1, damaged), BadSample);
  CHECK_THROWS_AS(held.use(0, 0, 1, damaged), BadSample);
  CHECK(reads == 1);
  const auto unreadable = [&]() -> std::shared_ptr<const RowGroup> {
    ++reads;
    throw UserError("gone");
  };
  CHECK_THROWS_AS(held.use(1, 0, 1, unreadable), UserError);
  CHECK_THROWS_AS(held.use(1, 0, 1, unreadable), UserError);
  CHECK(reads == 3);
}

TEST_CASE("threads share what one of them reads") {
  constexpr int64_t kGroups = 20, kRows = 50, kThreads = 4;
  HeldGroups held(kMuch, false);
  std::atomic<int64_t> reads = 0, next = 0;
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int64_t row = next++; row < kGroups * kRows; row = next++)
        held.use(row / kRows, row % kRows, kRows, [&] { return ++reads, group_of(kRows); });
    });
  for (auto& thread : threads) thread.join();
  CHECK(reads == kGroups);
  CHECK(held.bytes() == 0);
}
