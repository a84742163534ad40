// Every wait between the loader's threads, the copies and the step: batches that are copied on a second stream, batches
// that are copied before the step, and a data set that is kept on the device.
#include "data/on_device/device_dataset.h"
#include "device/tensor.h"
#include "support/catch.h"
#include "support/loaded_data.h"
#include "support/recording_device.h"
#include "unit/data/probe.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

constexpr int64_t kSamples = 48, kSide = 4, kBatch = 4;

/// Reports where the loader's threads write.
class ReportingDataset : public ProbeDataset {
 public:
  ReportingDataset() : ProbeDataset(kSamples, kSide) {}
  void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
            LoadScratch& scratch) const override {
    const int64_t values = destination.height * destination.width * 3;
    host_writes("loading a sample", destination.data, destination.format == PixelFormat::u8_hwc ? values : 4 * values);
    ProbeDataset::load(sample, key, pipeline, destination, scratch);
  }
};

std::unique_ptr<Loader> loader_of(int64_t workers, bool as_uint8) {
  LoadedData data;
  data.batch_size = kBatch;
  data.num_workers = workers;
  data.prefetch_factor = 1;
  data.finish_on_device = as_uint8;
  data.shuffle = !as_uint8;
  return make_loader(data, std::make_shared<ReportingDataset>());
}

/// A step's work on the current stream: reads the batch and adds to a result.
void step_on(const Batch& batch, at::Tensor& result) {
  result.add_(batch.input.sum());
  result.add_(batch.target.sum());
}

}  // namespace

TEST_CASE("the step waits for its batch, and the loader for the copy out of its slot") {
  const bool non_blocking = GENERATE(true, false);
  const int64_t workers = GENERATE(0, 2);
  const int64_t batches = 3 * kSamples / kBatch;  // three epochs: each slot is used many times
  at::Tensor result;
  int64_t overlapped = 0, slots = 0;
  const HappensBefore seen = recorded_accesses([&] {
    LoadedBatches source(loader_of(workers, false), recording_device(), non_blocking, std::nullopt);
    result = at::zeros({}, at::TensorOptions(at::kFloat).device(recording_device()));
    slots = source.loader().slots();
    for (int64_t i = 0; i < batches; ++i) {
      const Batch batch = source.next();
      step_on(batch, result);
      if (workers > 0 && i % (kSamples / kBatch) < kSamples / kBatch - slots)
        REQUIRE(eventually([&] { return source.loader().ready_batches() > 0; }));  // so that copies run ahead
    }
    overlapped = source.take_stats().overlapped_copies;
  });
  CHECK(seen.problems() == std::vector<std::string>());
  CHECK(seen.accesses() > 3 * kSamples + 4 * batches);
  CHECK(overlapped == (non_blocking ? batches : 0));
  CHECK(slots < batches);
  CHECK(result.item<float>() > 0);
}

TEST_CASE("a data set on the device is complete before a step reads it") {
  const int64_t workers = GENERATE(0, 2);
  const HappensBefore seen = recorded_accesses([&] {
    DeviceDataset images;
    const auto loader = loader_of(workers, true);
    images.load(*loader, recording_device());
    const Stream other = Stream::side(recording_device());  // any stream may read it
    const StreamGuard guard(other);
    images.images().to(at::kFloat).sum();
    images.labels().sum();
  });
  CHECK(seen.problems() == std::vector<std::string>());
  CHECK(seen.accesses() > kSamples + 2 * kSamples / kBatch);
}
