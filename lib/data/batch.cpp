#include "data/batch.h"

#include "base/error.h"
#include "base/units.h"
#include "device/memory.h"
#include "device/tensor.h"

#include <algorithm>
#include <bit>

namespace trainopt {

Batch make_batch(const MicroBatch& where, at::Tensor input, at::Tensor target, std::vector<int64_t> sample_ids,
                 TokenCounts counts) {
  Batch batch;
  batch.input = std::move(input);
  batch.target = std::move(target);
  batch.sample_ids = std::move(sample_ids);
  batch.items = where.items;
  batch.step_items = where.step_items;
  batch.weight = counts.step > 0 ? counts.weight() : where.weight();
  batch.target_tokens = std::move(counts.of_samples);
  batch.tokens = counts.here;
  batch.step_tokens = counts.step;
  batch.is_first = where.is_first();
  batch.is_last = where.is_last;
  batch.epoch = where.epoch;
  batch.step = where.step;
  batch.micro = where.micro;
  return batch;
}

namespace {
constexpr auto kInteger = static_cast<int64_t>(sizeof(int64_t));  ///< a token or a label

// One sample's bytes.
int64_t input_bytes(const BufferFormat& format) {
  if (format.tokens > 0) return format.tokens * kInteger;
  return format.size.height * format.size.width * 3 * (format.as_uint8 ? 1 : 4);
}
int64_t target_bytes(const BufferFormat& format) { return std::max<int64_t>(format.tokens, 1) * kInteger; }

// A batch's bytes in a slot.
int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int64_t input_bytes(const BufferFormat& format, int64_t batch_size) {
  return aligned(batch_size * input_bytes(format));
}
int64_t target_bytes(const BufferFormat& format, int64_t batch_size) {
  return aligned(batch_size * target_bytes(format));
}
}  // namespace

int64_t batch_bytes(const BufferFormat& format, int64_t batch_size) {
  return batch_size * (input_bytes(format) + target_bytes(format) + kInteger);
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
    : sample_ids(static_cast<size_t>(batch_size)), format_(format) {
  const auto [height, width] = format.size;
  const at::Tensor inputs = bytes.narrow(0, 0, batch_size * input_bytes(format));
  if (format.tokens > 0)
    input_ = inputs.view(at::kLong);
  else if (format.as_uint8)
    input_ = inputs.view({batch_size, height, width, 3});
  else if (format.memory_format == at::MemoryFormat::ChannelsLast)
    input_ = inputs.view(at::kFloat).view({batch_size, height, width, 3}).permute({0, 3, 1, 2});
  else
    input_ = inputs.view(at::kFloat).view({batch_size, 3, height, width});
  target_ = bytes.narrow(0, input_bytes(format, batch_size), batch_size * target_bytes(format)).view(at::kLong);
  base_ = static_cast<uint8_t*>(input_.data_ptr());
  targets_ = target_.data_ptr<int64_t>();
}

std::vector<BatchBuffer> make_buffers(const BufferFormat& format, int64_t batch_size, int64_t count, bool pinned) {
  const int64_t slot_bytes = input_bytes(format, batch_size) + target_bytes(format, batch_size);
  std::vector<BatchBuffer> slots;
  for (const int64_t together : slots_by_allocation(count, slot_bytes)) {
    const at::Tensor allocation = host_tensor({together * slot_bytes}, at::kByte, at::MemoryFormat::Contiguous, pinned);
    for (int64_t i = 0; i < together; ++i)
      slots.push_back(BatchBuffer(format, batch_size, allocation.narrow(0, i * slot_bytes, slot_bytes)));
  }
  return slots;
}

SamplePlace BatchBuffer::place(int64_t i, int64_t width) const {
  if (format_.tokens == 0) return {.image = image(i), .target = targets_ + i};
  TRAINOPT_CHECK(width <= format_.tokens);
  return {.image = {},
          .tokens = reinterpret_cast<int64_t*>(base_) + i * width,
          .target = targets_ + i * width,
          .width = width};
}

Destination BatchBuffer::image(int64_t i) const {
  const PixelFormat pixels = format_.as_uint8                                          ? PixelFormat::u8_hwc
                             : format_.memory_format == at::MemoryFormat::ChannelsLast ? PixelFormat::f32_hwc
                                                                                       : PixelFormat::f32_chw;
  return {pixels, base_ + i * input_bytes(format_), format_.size.height, format_.size.width};
}

at::Tensor BatchBuffer::input(int64_t items, int64_t width) const { return first(input_, items, width); }
at::Tensor BatchBuffer::target(int64_t items, int64_t width) const { return first(target_, items, width); }

at::Tensor BatchBuffer::first(const at::Tensor& all, int64_t items, int64_t width) const {
  if (format_.tokens == 0) return all.narrow(0, 0, items);
  return all.narrow(0, 0, items * width).view({items, width});
}

}  // namespace trainopt
