#include "metrics/async_reader.h"

#include "device/tensor.h"
#include "support/catch.h"

using namespace trainopt;

TEST_CASE("rows arrive in order and at most two steps late") {
  const at::Device gpu(at::kCUDA, 0);
  AsyncReader reader(gpu);
  std::vector<StepRecord> rows;
  for (int64_t step = 1; step <= 50; ++step) {
    PendingRecord record;
    record.set_position(step, step * 32, 32, 320);
    record.add(Metric::loss, at::full({}, static_cast<double>(step), gpu));
    record.add(Metric::grad_norm,
               at::full({1}, 2.0 * static_cast<double>(step), at::TensorOptions().device(gpu).dtype(at::kBFloat16)));
    record.finish();
    reader.submit(std::move(record));
    CHECK(reader.in_flight() <= AsyncReader::kMaxInFlight);
    for (StepRecord& row : reader.poll()) rows.push_back(row);
    CHECK(static_cast<int64_t>(rows.size()) >= step - 2);
  }
  for (StepRecord& row : reader.flush()) rows.push_back(row);
  REQUIRE(rows.size() == 50);
  for (int64_t step = 1; step <= 50; ++step) {
    CHECK(rows[static_cast<size_t>(step - 1)][Metric::loss] == static_cast<double>(step));
    CHECK(rows[static_cast<size_t>(step - 1)][Metric::grad_norm] == 2.0 * static_cast<double>(step));
  }
}
