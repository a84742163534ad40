#include "data/shaped_batches.h"

#include "data/batch_source.h"
#include "data/device_dataset.h"
#include "device/tensor.h"

namespace trainopt {

ShapedBatches::ShapedBatches(const DataSpec& data, const LoaderSettings& settings, const TensorFormat& format,
                             c10::Device device)
    : schedule_(data.schedule()), memory_format_(format.memory_format) {
  if (data.is_text())
    width_ = largest_width(data);
  else
    image_ = data.image_size();
  if (!data.dataset) {
    input_ = make_input();
    return;
  }
  if (settings.finish_on_device || data.device_dataset) type_ = format.compute_type;
  const BufferFormat buffer = buffer_format(data, settings, format.memory_format);
  if (data.device_dataset) {
    resident_.push_back(make({resident_bytes(buffer.size, data.samples())}, at::kByte));
    return;
  }
  const int64_t bytes = batch_bytes(buffer, data.batch_size);
  if (device.is_cpu()) {
    const int64_t slots = slot_count(settings.num_workers, settings.prefetch_factor, bytes, settings.memory_limit);
    const bool in_place = !settings.finish_on_device;  // the step reads one of the slots
    if (in_place) input_ = make_input();
    resident_.push_back(make({(in_place ? slots - 1 : slots) * bytes}, at::kByte));
  } else if (settings.non_blocking && settings.pin_memory) {
    resident_.push_back(make({bytes}, at::kByte));
  }
}

at::Tensor ShapedBatches::make(at::IntArrayRef sizes, at::ScalarType type) const {
  return at::empty(sizes, at::TensorOptions(at::kMeta).dtype(type));
}

at::Tensor ShapedBatches::make_input() const {
  const int64_t items = schedule_.shape().batch_size;
  if (width_ > 0) return make({items, width_}, at::kLong);
  return at::empty({items, 3, image_.height, image_.width},
                   at::TensorOptions(at::kMeta).dtype(type_).memory_format(memory_format_));
}

Batch ShapedBatches::next() {
  const MicroBatch where = schedule_.at_sequence(sequence_++);
  const at::Tensor input = (input_.defined() ? input_ : make_input()).narrow(0, 0, where.items);
  if (width_ == 0) return make_batch(where, input, make({where.items}, at::kLong), {});
  return make_batch(where, input, make({where.items, width_}, at::kLong), {}, uniform_counts(where, width_));
}

}  // namespace trainopt
