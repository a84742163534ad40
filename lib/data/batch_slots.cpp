#include "data/batch_slots.h"

#include "base/error.h"
#include "base/units.h"
#include "device/pinned.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace trainopt {
namespace {
int64_t image_bytes(const SlotFormat& format) { return format.size.height * format.size.width * 3 * (format.as_uint8 ? 1 : 4); }
}  // namespace

int64_t batch_bytes(const SlotFormat& format, int64_t batch_size) {
  return batch_size * (image_bytes(format) + 2 * static_cast<int64_t>(sizeof(int64_t)));
}

int64_t slot_count(int64_t num_workers, int64_t prefetch_factor, int64_t batch_bytes, int64_t memory_limit) {
  const int64_t wanted = num_workers == 0 ? 2 : num_workers * prefetch_factor + 2;
  const int64_t fitting = memory_limit / batch_bytes;
  if (fitting < 2)
    throw UserError(
        fmt::format("data.memory_limit must hold two batches: it is {}, one batch takes {}; raise it or lower data.batch_size",
                    human_bytes(static_cast<double>(memory_limit)), human_bytes(static_cast<double>(batch_bytes))));
  return std::min(wanted, fitting);
}

SlotMemory::SlotMemory(const SlotFormat& format, int64_t batch_size, bool pinned)
    : sample_ids(static_cast<size_t>(batch_size)), format_(format), image_bytes_(image_bytes(format)) {
  const auto [height, width] = format.size;
  input = format.as_uint8 ? host_tensor({batch_size, height, width, 3}, at::kByte, at::MemoryFormat::Contiguous, pinned)
                          : host_tensor({batch_size, 3, height, width}, at::kFloat, format.memory_format, pinned);
  target = host_tensor({batch_size}, at::kLong, at::MemoryFormat::Contiguous, pinned);
  base_ = static_cast<uint8_t*>(input.data_ptr());
}

Destination SlotMemory::destination(int64_t i) const {
  const PixelFormat pixels = format_.as_uint8                                          ? PixelFormat::u8_hwc
                             : format_.memory_format == at::MemoryFormat::ChannelsLast ? PixelFormat::f32_hwc
                                                                                       : PixelFormat::f32_chw;
  return {pixels, base_ + i * image_bytes_, format_.size.height, format_.size.width};
}

}  // namespace trainopt
