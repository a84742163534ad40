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

struct Drawn {
  at::Tensor input, target;
};

/// Samples `first` … `first + items - 1` of all that ranks use.
Drawn draw_images(const DataSpec& data, int64_t first, int64_t items) {
  const int64_t side = data.synthetic.side, values = 3 * side * side;
  const uint64_t pixel_key = mix_key(data.seed, "synthetic pixels"), label_key = mix_key(data.seed, "synthetic labels");
  Drawn drawn{at::empty({items, 3, side, side}, at::kFloat), at::empty({items}, at::kLong)};
  for (int64_t i = 0; i < items; ++i) {
    draw_image(pixel_key, first + i, drawn.input.data_ptr<float>() + i * values, values);
    PhiloxStream labels(label_key, static_cast<uint64_t>(first + i));
    drawn.target.data_ptr<int64_t>()[i] =
        static_cast<int64_t>(labels.next_below(static_cast<uint64_t>(data.synthetic.num_classes)));
  }
  return drawn;
}

Drawn draw_text(const DataSpec& data, int64_t first, int64_t items) {
  const uint64_t key = mix_key(data.seed, "synthetic tokens");
  const at::Tensor tokens = at::empty({items, data.context + 1}, at::kLong);
  for (int64_t i = 0; i < items; ++i) {
    PhiloxStream stream(key, static_cast<uint64_t>(first + i));
    int64_t* row = tokens.data_ptr<int64_t>() + i * (data.context + 1);
    for (int64_t j = 0; j <= data.context; ++j)
      row[j] = static_cast<int64_t>(stream.next_below(static_cast<uint64_t>(data.synthetic.vocabulary)));
  }
  return {tokens.narrow(1, 0, data.context).contiguous(), tokens.narrow(1, 1, data.context).contiguous()};
}

}  // namespace

SyntheticBatches::SyntheticBatches(const DataSpec& data, at::MemoryFormat memory_format, c10::Device device,
                                   int64_t first_step)
    : schedule_(data.schedule()), context_(data.context), sequence_(schedule_.sequence_of(first_step)) {
  const int64_t items = data.batch_size, first = data.rank * items;
  const Drawn drawn = data.is_text() ? draw_text(data, first, items) : draw_images(data, first, items);
  input_ = drawn.input.to(with_index(device));
  if (!data.is_text()) input_ = input_.contiguous(memory_format);
  target_ = drawn.target.to(with_index(device));
}

Batch SyntheticBatches::next() {
  const TraceRange range("loader::wait");
  const MicroBatch where = schedule_.at_sequence(sequence_++);
  std::vector<int64_t> sample_ids(static_cast<size_t>(where.items));
  std::iota(sample_ids.begin(), sample_ids.end(), schedule_.shape().rank * schedule_.shape().batch_size);
  return make_batch(where, input_.narrow(0, 0, where.items), target_.narrow(0, 0, where.items), std::move(sample_ids),
                    context_ > 0 ? uniform_counts(where, context_) : TokenCounts());
}

Batch largest_batch(const DataSpec& data, c10::Device device) {
  const int64_t items = data.batch_size, width = largest_width(data);
  const MicroBatch where{.items = items, .step_items = items, .is_last = true};
  const auto zeros = [&] { return at::zeros({items, width}, at::TensorOptions(with_index(device)).dtype(at::kLong)); };
  return make_batch(where, zeros(), zeros(), std::vector<int64_t>(static_cast<size_t>(items)),
                    uniform_counts(where, width));
}

}  // namespace trainopt
