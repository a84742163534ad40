#include "metrics/async_reader.h"

#include "support/catch.h"

using namespace trainopt;

namespace {

StepRecord row_with_memory(const MemoryStats& stats) {
  PendingRecord record;
  record.set_memory(stats, /*of_cpu=*/false);
  record.finish();
  AsyncReader reader(at::kCPU);
  reader.submit(std::move(record));
  return reader.flush().front();
}

}  // namespace

TEST_CASE("a record has the figures of the GPU's allocator in the catalogue's units") {
  const StepRecord row = row_with_memory({.allocated = 6 << 20,
                                          .reserved = 20 << 20,
                                          .active = 7 << 20,
                                          .inactive_split = 1 << 20,
                                          .peak_allocated = 9 << 20,
                                          .peak_reserved = 24 << 20,
                                          .capacity = 96 << 20,
                                          .segments = 4,
                                          .device_allocs = 5,
                                          .device_frees = 1,
                                          .retries = 2,
                                          .ooms = 0});
  CHECK(row[Metric::memory_allocated_mib] == 6.0);
  CHECK(row[Metric::memory_reserved_mib] == 20.0);
  CHECK(row[Metric::memory_active_mib] == 7.0);
  CHECK(row[Metric::memory_peak_pct] == 25.0);
  CHECK(row[Metric::alloc_retries] == 2.0);
  CHECK(row[Metric::device_allocs] == 5.0);
  CHECK(row[Metric::device_frees] == 1.0);
}

TEST_CASE("a share of a memory of unknown size is not measured") {
  const StepRecord row = row_with_memory({.reserved = 20 << 20, .peak_reserved = 24 << 20});
  CHECK(!row[Metric::memory_peak_pct]);
  CHECK(row[Metric::alloc_retries] == 0.0);
}
