#include "support/recording_device.h"

#include "device/tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <fmt/format.h>

#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>

namespace trainopt::test {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);

std::mutex mutex;  ///< of everything below
HappensBefore order;
int64_t streams = 1;  ///< 0 is the default stream
int64_t reused = 0;
thread_local c10::StreamId current_stream = 0;

c10::Stream stream_of(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }

void host_waits_for_stream(Queue stream) { order.wait(kHost, order.now(stream)); }

struct FakeEvent {
  HappensBefore::Clock clock;
};

class Guard : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return stream_of(current_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    const std::lock_guard lock(mutex);
    return stream_of(streams++);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of(std::exchange(current_stream, stream.id()));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    const std::lock_guard lock(mutex);
    host_waits_for_stream(stream.id());
  }
  void synchronizeDevice(c10::DeviceIndex) const override {
    const std::lock_guard lock(mutex);
    for (Queue stream = 0; stream < streams; ++stream) host_waits_for_stream(stream);
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new FakeEvent();
    const std::lock_guard lock(mutex);
    static_cast<FakeEvent*>(*event)->clock = order.now(stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    const std::lock_guard lock(mutex);
    order.wait(stream.id(), static_cast<FakeEvent*>(event)->clock);
  }
  bool queryEvent(void* event) const override {
    const std::lock_guard lock(mutex);
    return order.host_knows(static_cast<FakeEvent*>(event)->clock);
  }
  void synchronizeEvent(void* event) const override {
    const std::lock_guard lock(mutex);
    order.wait(kHost, static_cast<FakeEvent*>(event)->clock);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<FakeEvent*>(event); }
  double elapsedTime(void*, void*, c10::DeviceIndex) const override { return 1; }
};

/// Reuses freed blocks as libtorch's allocator for GPUs does: at once on the stream that allocated them, but a block
/// that record_stream() was called for only when the host knows that those streams have passed the point of its
/// release.
class Allocator : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const std::lock_guard lock(mutex);
    bytes = std::max<size_t>(bytes, 1);
    auto block = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& each) {
      return each.free && each.bytes == bytes && each.stream == current_stream && order.host_knows(each.last_use);
    });
    if (block != blocks_.end())
      ++reused;
    else
      block = new_block(bytes);
    block->free = false;
    block->stream = current_stream;
    block->users.clear();
    return {block->memory.get(), block->memory.get(), &release, kDevice};
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    const std::lock_guard lock(mutex);
    Block& block = block_of(data.get());
    if (stream.id() != block.stream) block.users.insert(stream.id());
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override { return {size_t{1} << 32, size_t{1} << 32}; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

 private:
  struct Block {
    std::unique_ptr<char[]> memory;
    size_t bytes = 0;
    c10::StreamId stream = 0;  ///< that allocated it
    bool free = false;
    std::set<Queue> users = {};          ///< other streams that use it
    HappensBefore::Clock last_use = {};  ///< by them
  };
  static void release(void* data);
  std::list<Block>::iterator new_block(size_t bytes) {
    const auto block = blocks_.insert(blocks_.end(), {.memory = std::make_unique<char[]>(bytes), .bytes = bytes});
    const auto begin = reinterpret_cast<uintptr_t>(block->memory.get());
    order.forget({begin, begin + bytes});
    return block;
  }
  Block& block_of(const void* data) {
    return *std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& each) { return each.memory.get() == data; });
  }
  std::list<Block> blocks_;
};
Allocator allocator;

void Allocator::release(void* data) {
  const std::lock_guard lock(mutex);
  Block& block = allocator.block_of(data);
  block.free = true;
  block.last_use.clear();
  for (const Queue user : block.users)
    for (const auto& [queue, time] : order.now(user)) {
      int64_t& latest = block.last_use[queue];
      latest = std::max(latest, time);
    }
}

bool is_ours(const at::Tensor& tensor) { return tensor.defined() && tensor.is_privateuseone(); }

/// The bytes from the tensor's first element to its last.
Range range_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return {begin, begin + static_cast<uintptr_t>((last + 1) * tensor.element_size())};
}

/// The same memory as a tensor of the CPU.
at::Tensor on_cpu(const at::Tensor& tensor) {
  return is_ours(tensor) ? at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                                         tensor.options().device(at::kCPU).requires_grad(false))
                         : tensor;
}

void launch(const std::string& what, const std::vector<Range>& reads, const std::vector<Range>& writes) {
  const std::lock_guard lock(mutex);
  order.access(current_stream, what, reads, writes);
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      sizes, strides, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat));
}

/// Copies between devices run on this device's current stream; those that may block wait for it.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  launch("copy", {range_of(from)}, {range_of(to)});
  on_cpu(to).copy_(on_cpu(from));
  if (!non_blocking && (from.is_cpu() || to.is_cpu())) {
    const std::lock_guard lock(mutex);
    host_waits_for_stream(current_stream);
  }
  return to;
}

void record_stream(at::Tensor& tensor, c10::Stream stream) {
  allocator.recordStream(tensor.storage().data_ptr(), stream);
}

/// Every other operation: computed by the CPU's kernel, as work of the current stream.
void compute(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const auto& schema = operation.schema();
  const size_t first = stack->size() - schema.arguments().size();
  const std::vector<c10::IValue> given(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  std::vector<Range> reads, writes;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    auto& into = alias != nullptr && alias->isWrite() ? writes : reads;
    if (given[i].isTensor() && is_ours(given[i].toTensor())) {  // a scalar of the CPU is read when it is queued
      into.push_back(range_of(given[i].toTensor()));
      (*stack)[first + i] = on_cpu(given[i].toTensor());
    } else if (given[i].isTensorList()) {
      std::vector<at::Tensor> all;
      for (const at::Tensor& each : given[i].toTensorVector()) {
        into.push_back(range_of(each));
        all.push_back(on_cpu(each));
      }
      (*stack)[first + i] = all;
    } else if (given[i].isDevice()) {
      (*stack)[first + i] = c10::Device(at::kCPU);
    }
  }
  operation.callBoxed(stack);
  const size_t returned = stack->size() - schema.returns().size();
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    c10::IValue& value = (*stack)[returned + i];
    if (!value.isTensor()) continue;
    const at::Tensor result = value.toTensor();
    const auto same = std::find_if(given.begin(), given.end(), [&](const c10::IValue& each) {
      return each.isTensor() && is_ours(each.toTensor()) && result.numel() > 0 &&
             each.toTensor().const_data_ptr() == result.const_data_ptr();
    });
    if (same != given.end()) {  // in place
      if (!schema.returns()[i].alias_info()) throw std::logic_error(schema.name() + " returns a view of its input");
      value = *same;
      continue;
    }
    const at::Tensor ours = empty_strided(result.sizes(), result.strides(), result.scalar_type(), {}, {}, {});
    std::memcpy(ours.mutable_data_ptr(), result.const_data_ptr(), result.nbytes());
    writes.push_back(range_of(ours));
    value = ours;
  }
  launch(schema.name(), reads, writes);
  if (schema.name() == "aten::_local_scalar_dense") {  // the host reads the value
    const std::lock_guard lock(mutex);
    host_waits_for_stream(current_stream);
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  library.impl("_copy_from", &copy_from);
  library.impl("record_stream", &record_stream);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>()); }

}  // namespace

c10::Device recording_device() {
  static const bool registered = [] {
    c10::SetAllocator(kType, &allocator);
    static const Guard guard;
    c10::impl::device_guard_impl_registry[static_cast<size_t>(kType)].store(&guard);
    return true;
  }();
  static_cast<void>(registered);
  return kDevice;
}

HappensBefore recorded_accesses(const std::function<void()>& work) {
  recording_device();
  {
    const std::lock_guard lock(mutex);
    order = {};
    reused = 0;
  }
  work();
  const std::lock_guard lock(mutex);
  return order;
}

void host_writes(const std::string& what, const void* data, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const std::lock_guard lock(mutex);
  order.access(kHost, what, {}, {{begin, begin + static_cast<uintptr_t>(bytes)}});
}

int64_t reused_blocks() {
  const std::lock_guard lock(mutex);
  return reused;
}

}  // namespace trainopt::test
