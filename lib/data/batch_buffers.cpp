#include "data/batch_buffers.h"

#include "base/error.h"
#include "base/units.h"
#include "device/pinned.h"
#include "device/tensor.h"

#include <algorithm>
#include <bit>

namespace trainopt {
namespace {
int64_t image_bytes(const BufferFormat& format) {
  return format.size.height * format.size.width * 3 * (format.as_uint8 ? 1 : 4);
}
int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int64_t input_bytes(const BufferFormat& format, int64_t batch_size) {
  return aligned(batch_size * image_bytes(format));
}
int64_t target_bytes(int64_t batch_size) { return aligned(batch_size * static_cast<int64_t>(sizeof(int64_t))); }
}  // namespace

int64_t batch_bytes(const BufferFormat& format, int64_t batch_size) {
  return batch_size * (image_bytes(format) + 2 * static_cast<int64_t>(sizeof(int64_t)));
}

int64_t slot_count(int64_t num_workers, int64_t prefetch_factor, int64_t batch_bytes, int64_t memory_limit) {
  const int64_t wanted = num_workers == 0 ? 2 : num_workers * prefetch_factor + 2;
  const int64_t fitting = memory_limit / batch_bytes;
  if (fitting < 2)
    throw UserError(fmt::format(
        "data.memory_limit must hold two batches; raise it or lower data.batch_size: it is {}, one batch takes {}",
        human_bytes(static_cast<double>(memory_limit)), human_bytes(static_cast<double>(batch_bytes))));
  return std::min(wanted, fitting);
}

std::vector<int64_t> slots_by_allocation(int64_t slots, int64_t slot_bytes) {
  TRAINOPT_CHECK(slots >= 1 && slot_bytes >= 1);
  // min_bytes[n]: fewest bytes for n slots; last[n]: how many of those slots are then in the last allocation.
  std::vector<int64_t> min_bytes(static_cast<size_t>(slots) + 1), last(min_bytes.size());
  for (size_t n = 1; n < min_bytes.size(); ++n)
    for (auto size = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(slot_bytes)));; size *= 2) {
      const int64_t here = std::min(static_cast<int64_t>(n), size / slot_bytes);
      const int64_t bytes = size + min_bytes[n - static_cast<size_t>(here)];
      if (min_bytes[n] == 0 || bytes <= min_bytes[n]) min_bytes[n] = bytes, last[n] = here;
      if (here == static_cast<int64_t>(n)) break;
    }
  std::vector<int64_t> allocations;
  for (int64_t left = slots; left > 0; left -= allocations.back())
    allocations.push_back(last[static_cast<size_t>(left)]);
  return allocations;
}

BatchBuffer::BatchBuffer(const BufferFormat& format, int64_t batch_size, const at::Tensor& bytes)
    : sample_ids(static_cast<size_t>(batch_size)), format_(format), image_bytes_(image_bytes(format)) {
  const auto [height, width] = format.size;
  const at::Tensor images = bytes.narrow(0, 0, batch_size * image_bytes_);
  if (format.as_uint8)
    input = images.view({batch_size, height, width, 3});
  else if (format.memory_format == at::MemoryFormat::ChannelsLast)
    input = images.view(at::kFloat).view({batch_size, height, width, 3}).permute({0, 3, 1, 2});
  else
    input = images.view(at::kFloat).view({batch_size, 3, height, width});
  target = bytes.narrow(0, input_bytes(format, batch_size), batch_size * static_cast<int64_t>(sizeof(int64_t)))
               .view(at::kLong);
  base_ = static_cast<uint8_t*>(input.data_ptr());
}

std::vector<BatchBuffer> make_buffers(const BufferFormat& format, int64_t batch_size, int64_t count, bool pinned) {
  const int64_t slot_bytes = input_bytes(format, batch_size) + target_bytes(batch_size);
  std::vector<BatchBuffer> slots;
  for (const int64_t together : slots_by_allocation(count, slot_bytes)) {
    const at::Tensor allocation = host_tensor({together * slot_bytes}, at::kByte, at::MemoryFormat::Contiguous, pinned);
    for (int64_t i = 0; i < together; ++i)
      slots.push_back(BatchBuffer(format, batch_size, allocation.narrow(0, i * slot_bytes, slot_bytes)));
  }
  return slots;
}

Destination BatchBuffer::destination(int64_t i) const {
  const PixelFormat pixels = format_.as_uint8                                          ? PixelFormat::u8_hwc
                             : format_.memory_format == at::MemoryFormat::ChannelsLast ? PixelFormat::f32_hwc
                                                                                       : PixelFormat::f32_chw;
  return {pixels, base_ + i * image_bytes_, format_.size.height, format_.size.width};
}

}  // namespace trainopt
