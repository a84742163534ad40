#include "device/tensor_memory.h"

#include "base/error.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

namespace trainopt {
namespace {

/// libtorch has one CPU allocator per process, so there is one count.
struct CpuCounters {
  std::atomic<int64_t> live = 0, peak = 0;
  std::atomic<bool> counting = false;
  inline static thread_local int64_t of_thread = 0;

  void add(int64_t bytes) {
    of_thread += bytes;
    const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t before = peak.load(std::memory_order_relaxed);
    while (now > before && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
    }
  }
  void subtract(int64_t bytes) {
    of_thread -= bytes;
    live.fetch_sub(bytes, std::memory_order_relaxed);
  }
};
CpuCounters cpu_counters;

/// The listener of this process. Calls to it are made one at a time, and none after it is gone.
struct Listening {
  std::atomic<MemoryListener*> listener = nullptr;
  std::mutex mutex;

  template <class Tell>
  void tell(Tell call) {
    if (!listener.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex);
    if (MemoryListener* current = listener.load(std::memory_order_relaxed)) call(*current);
  }
};
Listening& listening() {
  static auto* const the_one = new Listening;  // never deleted: tensors may outlive everything else in the process
  return *the_one;
}

/// libtorch's profiler (profile_memory) expects every CPU allocator to report to it.
void report_to_profiler(void* data, int64_t bytes) {
  if (!c10::memoryProfilingEnabled()) return;
  const auto live = static_cast<size_t>(cpu_counters.live.load(std::memory_order_relaxed));
  c10::reportMemoryUsageToProfiler(data, bytes, live, 0, c10::Device(c10::kCPU));
}

}  // namespace

std::optional<TensorMemory> cpu_tensor_memory() {
  if (!cpu_counters.counting.load()) return std::nullopt;
  return TensorMemory{.live = cpu_counters.live.load(), .peak = cpu_counters.peak.load()};
}

void reset_cpu_tensor_peak() { cpu_counters.peak.store(cpu_counters.live.load()); }

int64_t cpu_tensor_bytes_of_thread() { return CpuCounters::of_thread; }

c10::DataPtr CountingAllocator::hand_out(Header* header) {
  void* data = header + 1;
  const auto bytes = static_cast<int64_t>(header->requested);
  cpu_counters.add(bytes);
  listening().tell([&](MemoryListener& listener) { listener.allocated(data, bytes, *MemoryScope::current()); });
  report_to_profiler(data, bytes);
  return {data, data, &CountingAllocator::release, c10::Device(c10::kCPU)};
}

c10::DataPtr CountingAllocator::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
  const size_t block = (bytes + 2 * sizeof(Header) - 1) / sizeof(Header) * sizeof(Header);
  void* start = std::aligned_alloc(alignof(Header), block);
  if (!start) throw std::bad_alloc();
  return hand_out(new (start) Header{nullptr, start, block, bytes});
}

void CountingAllocator::release(void* data) {
  if (!data) return;
  Header* header = static_cast<Header*>(data) - 1;
  const auto bytes = static_cast<int64_t>(header->requested);
  cpu_counters.subtract(bytes);
  listening().tell([&](MemoryListener& listener) { listener.released(data, bytes); });
  report_to_profiler(data, -bytes);
  if (header->owner)
    header->owner->take_back(header);
  else
    std::free(header->start);
}

void CountingAllocator::take_back(Header*) { throw BrokenInvariant("the block belongs to no caching allocator"); }

void install_counting_allocator() {
  if (cpu_counters.counting.exchange(true)) return;
  // Never deleted: tensors may outlive everything else in the process.
  c10::SetCPUAllocator(new CountingAllocator, /*priority=*/254);
}

/// A GPU's allocator reports to the profiler's state of the allocating thread, which backward's threads inherit.
class ListenToMemory::Reports : public c10::MemoryReportingInfoBase {
 public:
  Reports(c10::Device device, MemoryListener& listener)
      : device_(device), listener_(&listener), label_(MemoryScope::current()) {}

  void reportMemoryUsage(void* address, int64_t bytes, size_t, size_t, c10::Device device) override {
    if (device.type() != device_.type()) return;
    const std::lock_guard lock(listening().mutex);
    MemoryListener* const listener = listener_.load();
    if (!listener) return;
    if (bytes >= 0)
      // The listening thread's label: while backward's threads allocate, that thread waits for them.
      listener->allocated(address, bytes, *label_);
    else
      listener->released(address, -bytes);
  }
  bool memoryProfilingEnabled() const override { return listener_.load(std::memory_order_relaxed) != nullptr; }
  void stop() {
    const std::lock_guard lock(listening().mutex);
    listener_ = nullptr;
  }

 private:
  c10::Device device_;
  std::atomic<MemoryListener*> listener_;
  const MemoryLabel* const& label_;
};

struct ListenToMemory::OnDevice {
  OnDevice(c10::Device device, MemoryListener& listener)
      : reports(std::make_shared<Reports>(device, listener)), guard(c10::DebugInfoKind::PROFILER_STATE, reports) {}
  std::shared_ptr<Reports> reports;
  c10::DebugInfoGuard guard;  ///< ends with the object only: it would take away what was added after it
};

ListenToMemory::ListenToMemory(c10::Device device, MemoryListener& listener) : listener_(listener) {
  if (device.is_cpu()) {
    const std::lock_guard lock(listening().mutex);
    MemoryListener* before = listening().listener.exchange(&listener);
    TRAINOPT_CHECK(!before);
  } else {
    on_device_ = std::make_unique<OnDevice>(device, listener);
  }
}

void ListenToMemory::stop() {
  if (on_device_) return on_device_->reports->stop();
  const std::lock_guard lock(listening().mutex);
  MemoryListener* mine = &listener_;  // another one may listen by now
  listening().listener.compare_exchange_strong(mine, nullptr);
}

ListenToMemory::~ListenToMemory() { stop(); }

namespace {

constexpr MemoryLabel kUnlabelled;
thread_local const MemoryLabel* innermost_label = &kUnlabelled;

}  // namespace

MemoryScope::MemoryScope(const MemoryLabel& label) : label_(label), outer_(innermost_label) {
  innermost_label = &label_;
}

MemoryScope::~MemoryScope() { innermost_label = outer_; }

const MemoryLabel* const& MemoryScope::current() { return innermost_label; }

}  // namespace trainopt
