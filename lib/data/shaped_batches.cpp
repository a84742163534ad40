#include "data/shaped_batches.h"

#include "data/batch_source.h"
#include "data/device_dataset.h"
#include "device/tensor.h"

namespace trainopt {

ShapedBatches::ShapedBatches(const DataSpec& data, const LoaderSettings& settings, const TensorFormat& format,
                             c10::Device device)
    : schedule_(data.schedule()), image_(data.image_size()), memory_format_(format.memory_format) {
  if (!data.dataset) {
    images_ = make_images(at::kFloat);
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
    if (in_place) images_ = make_images(at::kFloat);
    resident_.push_back(make({(in_place ? slots - 1 : slots) * bytes}, at::kByte));
  } else if (settings.non_blocking && settings.pin_memory) {
    resident_.push_back(make({bytes}, at::kByte));
  }
}

at::Tensor ShapedBatches::make(at::IntArrayRef sizes, at::ScalarType type) const {
  return at::empty(sizes, at::TensorOptions(at::kMeta).dtype(type));
}

at::Tensor ShapedBatches::make_images(at::ScalarType type) const {
  return at::empty({schedule_.shape().batch_size, 3, image_.height, image_.width},
                   at::TensorOptions(at::kMeta).dtype(type).memory_format(memory_format_));
}

Batch ShapedBatches::next() {
  const MicroBatch where = schedule_.at_sequence(sequence_++);
  const at::Tensor images = images_.defined() ? images_ : make_images(type_);
  return image_batch(where, images.narrow(0, 0, where.items), make({where.items}, at::kLong), {});
}

}  // namespace trainopt
