// Tests the row groups in memory: each is read once, however many threads need it, and let go in time.
#include "data/formats/parquet/held_groups.h"

#include "base/error.h"
#include "data/stream_order.h"
#include "support/catch.h"

#include <algorithm>
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

constexpr int64_t kMuch = int64_t{1} << 30, kLate = 1000000;

}  // namespace

TEST_CASE("a row group is read once and let go when its rows were used") {
  HeldGroups held(kMuch, kLate, /*keep=*/false);
  int64_t reads = 0;
  const auto read = [&] { return ++reads, group_of(3); };
  for (const int64_t row : {0, 2}) held.use(7, row, 3, read);
  CHECK(reads == 1);
  CHECK(held.has(7));
  held.use(7, 1, 3, read);
  CHECK_FALSE(held.has(7));
  CHECK(held.bytes() == 0);
  held.use(7, 1, 3, read);
  CHECK(reads == 2);
}

TEST_CASE("a row group of which a filter leaves one row is let go after it") {
  HeldGroups held(kMuch, kLate, false);
  held.use(0, 2, 1, [] { return group_of(3); });
  CHECK_FALSE(held.has(0));
}

TEST_CASE("a row that is used again belongs to another epoch") {
  HeldGroups held(kMuch, kLate, false);
  int64_t reads = 0;
  const auto read = [&] { return ++reads, group_of(3); };
  for (const int64_t row : {0, 2, /*the next epoch*/ 2, 0}) held.use(7, row, 3, read);
  CHECK(held.has(7));
  held.use(7, 1, 3, read);
  CHECK_FALSE(held.has(7));
  CHECK(reads == 1);
}

TEST_CASE("a row group whose other rows are not needed is let go after a while") {
  HeldGroups held(kMuch, /*stale_after=*/10, false);
  const auto read = [] { return group_of(1000); };
  held.use(0, 0, 1000, read);
  for (int64_t row = 0; row < 12; ++row) held.use(1, row, 1000, read);
  CHECK(held.has(0));  // until something is read
  held.use(2, 0, 1000, read);
  CHECK((!held.has(0) && held.has(1)));
}

TEST_CASE("few row groups are in memory, in every epoch, on every rank, and after a resume") {
  StreamLayout layout{.runs = std::vector<int64_t>(300, 100), .partitions = 8, .window = 4096, .step_samples = 256};
  for (const int64_t ranks : {1, 2}) {
    HeldGroups held(kMuch, 2 * (4096 + 8 * 100), false);
    const int64_t one = group_of(100)->bytes();
    int64_t reads = 0, most = 0;
    for (int64_t epoch = 0; epoch < 6; ++epoch) {
      const StreamOrder order(layout, static_cast<uint64_t>(epoch));
      for (int64_t position = epoch == 0 ? 40 * 256 : 0; position < 117 * 256; ++position) {
        if (position % 256 >= 256 / ranks) continue;  // the first rank's
        const int64_t sample = order(position);
        held.use(sample / 100, sample % 100, 100, [&] { return ++reads, group_of(100); });
        most = std::max(most, held.bytes() / one);
      }
    }
    // Windows have 48 row groups, and each partition one that is cut. Others are of the last epoch, or were in use
    // where the run was resumed, and are not yet stale. Without letting them go it would be 111 and 76, and without
    // beginning anew with each epoch 1,740 and 876 readings.
    CHECK(most <= 100 / ranks);
    CHECK(reads <= 1720 / ranks);
  }
}

TEST_CASE("row groups that are kept stay, within the limit") {
  const int64_t one = group_of(1)->bytes();
  HeldGroups held(2 * one, kLate, /*keep=*/true);
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
  HeldGroups held(kMuch, kLate, false);
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
  HeldGroups held(kMuch, kLate, false);
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
