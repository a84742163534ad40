#include "storage/read_times.h"

#include "storage/data_files.h"
#include "support/catch.h"

#include <chrono>
#include <thread>

using namespace trainopt;

TEST_CASE("percentiles of reads' times are within a tenth") {
  ReadTimes times;
  CHECK(times.speed().median_ms == 0);
  for (int i = 1; i <= 1000; ++i) {
    times.add(i / 1e3, 100000);
    times.add(0.001, 200);  // of other sizes, which bring few bytes
  }
  const ReadSpeed speed = times.speed();
  CHECK(speed.reads == 2000);
  CHECK(speed.fast_ms == Approx(50).epsilon(0.1));
  CHECK(speed.median_ms == Approx(500).epsilon(0.1));
  CHECK(speed.slow_ms == Approx(990).epsilon(0.1));
  CHECK(speed.reading_s == Approx(501.5));
  times.add(0, 0);
  times.add(1e9, int64_t{1} << 62);
  CHECK(times.speed().reads == 2002);
}

TEST_CASE("reads that overlap are under way together") {
  ReadTimes times;
  {
    const ReadTimes::Read one(times, 100), two(times, 100);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(times.speed().active_s > 0.01);
  }
  const ReadSpeed speed = times.speed();
  CHECK(speed.reads == 2);
  CHECK(speed.under_way() > 1);
  CHECK(speed.under_way() <= 2.0001);
}

TEST_CASE("more concurrency helps only if all of it is used and answers do not wait for each other") {
  StorageUse use{
      .concurrency = 8,
      .speed = {.reads = 500, .active_s = 10, .reading_s = 78, .fast_ms = 30, .median_ms = 33, .slow_ms = 60}};
  CHECK(use.more_concurrency_helps());
  use.speed.reads = 10;
  CHECK_FALSE(use.more_concurrency_helps());
  use.speed.reads = 500;
  use.speed.median_ms = 70;
  CHECK_FALSE(use.more_concurrency_helps());
  use.speed.median_ms = 33;
  use.speed.reading_s = 40;
  CHECK_FALSE(use.more_concurrency_helps());
}
