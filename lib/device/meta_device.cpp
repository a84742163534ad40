#include "device/meta_device.h"

#include "device/meta_kernels.h"

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>

namespace trainopt {
namespace {

/// Hands out addresses that exist in no process: reading or writing there ends the program.
class MetaAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::kMeta)};
    constexpr size_t kAlignment = 64;
    const uintptr_t address = next_.fetch_add((bytes + kAlignment - 1) / kAlignment * kAlignment);
    auto* block = new MetaBlock{reinterpret_cast<void*>(address), static_cast<int64_t>(bytes)};
    report(*block, block->bytes);
    return {block->address, block, &MetaAllocator::release, c10::Device(c10::kMeta)};
  }
  void copy_data(void*, const void*, std::size_t) const override {}

 private:
  struct MetaBlock {
    void* address;
    int64_t bytes;
  };

  static void release(void* context) {
    const auto* block = static_cast<MetaBlock*>(context);
    report(*block, -block->bytes);
    delete block;
  }
  /// Through libtorch's profiler, as the allocators of GPUs do.
  static void report(const MetaBlock& block, int64_t bytes) {
    c10::reportMemoryUsageToProfiler(block.address, bytes, 0, 0, c10::Device(c10::kMeta));
  }

  std::atomic<uintptr_t> next_ = uintptr_t{1} << 62;
};

}  // namespace

void open_meta_device() {
  static const bool opened = [] {
    c10::SetAllocator(c10::kMeta, new MetaAllocator);  // never deleted: tensors may outlive everything else
    register_meta_kernels();
    return true;
  }();
  static_cast<void>(opened);
}

}  // namespace trainopt
