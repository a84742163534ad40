#include "base/philox.h"
#include "data/batch_source.h"
#include "device/device.h"
#include "device/tensor.h"
#include "device/trace_range.h"

#include <cstring>
#include <numeric>

namespace trainopt {
namespace {

/// Draws values distributed like normalised bytes: uniform, with mean 0 and variance 1.
void draw_image(uint64_t key, int64_t index, float* values, int64_t count) {
  constexpr float kMean = 127.5f, kDeviation = 73.9f;
  for (int64_t i = 0; i < count; i += 16) {
    const PhiloxBlock block = philox(key, static_cast<uint64_t>(index), static_cast<uint64_t>(i / 16));
    uint8_t bytes[16];
    std::memcpy(bytes, block.data(), 16);
    for (int64_t j = 0; j < std::min<int64_t>(16, count - i); ++j)
      values[i + j] = (static_cast<float>(bytes[j]) - kMean) / kDeviation;
  }
}

}  // namespace

SyntheticBatches::SyntheticBatches(const BatchSchedule& schedule, const SyntheticImages& images,
                                   at::MemoryFormat memory_format, uint64_t seed, c10::Device device,
                                   int64_t first_step)
    : schedule_(schedule), sequence_(schedule.sequence_of(first_step)) {
  const auto [samples, items, ranks, rank, accumulation, drop_last] = schedule.shape();
  const int64_t values = 3 * images.side * images.side;
  input_ = at::empty({items, 3, images.side, images.side}, at::kFloat);
  target_ = at::empty({items}, at::kLong);
  const uint64_t pixel_key = mix_key(seed, "synthetic pixels"), label_key = mix_key(seed, "synthetic labels");
  for (int64_t i = 0; i < items; ++i) {
    const int64_t index = rank * items + i;
    draw_image(pixel_key, index, input_.data_ptr<float>() + i * values, values);
    PhiloxStream labels(label_key, static_cast<uint64_t>(index));
    target_.data_ptr<int64_t>()[i] = static_cast<int64_t>(labels.next_below(static_cast<uint64_t>(images.num_classes)));
  }
  input_ = input_.to(with_index(device)).contiguous(memory_format);
  target_ = target_.to(with_index(device));
}

Batch SyntheticBatches::next() {
  const TraceRange range("loader::wait");
  const MicroBatch where = schedule_.at_sequence(sequence_++);
  std::vector<int64_t> sample_ids(static_cast<size_t>(where.items));
  std::iota(sample_ids.begin(), sample_ids.end(), schedule_.shape().rank * schedule_.shape().batch_size);
  return image_batch(where, input_.narrow(0, 0, where.items), target_.narrow(0, 0, where.items), std::move(sample_ids));
}

}  // namespace trainopt
