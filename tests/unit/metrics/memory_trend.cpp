#include "metrics/step_statistics.h"

#include "support/catch.h"

using namespace trainopt;

namespace {

/// The warning after these values of memory_allocated_mib; the text of the warning, or empty.
std::string warning_after(int64_t steps, const std::function<std::optional<double>(int64_t)>& mib) {
  MemoryTrend trend;
  for (int64_t step = 1; step <= steps; ++step) {
    StepRecord row;
    row[Metric::step] = static_cast<double>(step);
    row[Metric::memory_allocated_mib] = mib(step);
    trend.add(row);
  }
  return trend.warning().value_or("");
}

}  // namespace

TEST_CASE("memory that rises in every step is reported, with its size") {
  const auto rising = [](int64_t step) { return 100 + 0.5 * static_cast<double>(step); };
  // 3 steps settle, and the first comparison is between steps 4 and 5.
  CHECK(warning_after(23, rising).empty());
  CHECK_THAT(warning_after(24, rising), ContainsSubstring("512.0 KiB more in each step, 10.0 MiB in 20 steps"));
  CHECK(warning_after(24, [](int64_t step) { return 100 + 0.001 * static_cast<double>(step); }).empty());  // too little
}

TEST_CASE("memory that settles, swings or is not measured is not reported") {
  CHECK(warning_after(50, [](int64_t step) {
          return std::min<double>(200, 100 + 10 * static_cast<double>(step));
        }).empty());
  CHECK(warning_after(50, [](int64_t step) { return 100 + 10 * static_cast<double>(step % 4); }).empty());
  CHECK(warning_after(50, [](int64_t) { return std::nullopt; }).empty());
}
