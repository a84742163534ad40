#include "metrics/async_reader.h"

#include "device/tensor.h"
#include "support/catch.h"

#include <thread>

using namespace trainopt;

namespace {

PendingRecord record_of(int64_t step, const at::Tensor& loss) {
  PendingRecord record;
  record.set_position(step, step * 32, 32, 320);
  record.add(Metric::loss, loss);
  record.finish();
  return record;
}

}  // namespace

TEST_CASE("on the CPU rows are ready at once, in order, with micro-batches summed") {
  AsyncReader reader(at::kCPU);
  const at::Tensor first = at::full({}, 0.25f).requires_grad_();
  for (int64_t step = 1; step <= 4; ++step) {
    PendingRecord record = record_of(step, first * static_cast<double>(step));
    record.add(Metric::loss, at::full({}, 0.5f));
    record.set(Metric::learning_rate, 0.1);
    reader.submit(std::move(record));
  }
  CHECK(reader.in_flight() == 0);
  const std::vector<StepRecord> rows = reader.poll();
  REQUIRE(rows.size() == 4);
  for (int64_t step = 1; step <= 4; ++step) {
    const StepRecord& row = rows[static_cast<size_t>(step - 1)];
    CHECK(row.step() == step);
    CHECK(*row[Metric::samples] == static_cast<double>(step * 32));
    CHECK(*row[Metric::epoch] == Approx(static_cast<double>(step) * 0.1));
    CHECK(row[Metric::loss] == 0.25 * static_cast<double>(step) + 0.5);
    CHECK(row[Metric::learning_rate] == 0.1);
    CHECK(!row[Metric::grad_norm]);
    CHECK(row.step_samples == 32);
  }
  CHECK(first.item<float>() == 0.25f);
  CHECK(reader.poll().empty());
  CHECK(reader.flush().empty());
}

TEST_CASE("summing does not write into the caller's tensors") {
  PendingRecord record;
  const at::Tensor loss = at::full({}, 1.0f);
  record.add(Metric::loss, loss);
  record.add(Metric::loss, loss);
  AsyncReader reader(at::kCPU);
  reader.submit(std::move(record));
  CHECK(reader.poll().front()[Metric::loss] == 2.0);
  CHECK(loss.item<float>() == 1.0f);
}

TEST_CASE("spans are summed, and step times follow from the step's boundaries") {
  const Stream stream = Stream::current(at::kCPU);
  PendingRecord record;
  record.set_position(1, 100, 100, 0);
  for (int i = 0; i < 2; ++i) {
    auto span = std::make_shared<EventSpan>(at::kCPU);
    span->start.record(stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    span->end.record(stream);
    record.add(Metric::copy_ms, span);
  }
  record.finish(/*paused_ms=*/1.0);
  AsyncReader reader(at::kCPU);
  reader.submit(std::move(record));
  const StepRecord row = reader.poll().front();
  CHECK(*row[Metric::copy_ms] >= 6.0);
  CHECK(*row[Metric::step_ms] == Approx(milliseconds_between(row.began, row.ended) - 1.0));
  CHECK(*row[Metric::samples_per_s] == Approx(100 / *row[Metric::step_ms] * 1e3));
  CHECK(!row[Metric::epoch]);
}
