// The memory of tensors, observed where it is allocated. libtorch counts the memory of GPUs only, so CPU tensors come
// from an allocator of this project, which counts them.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace trainopt {

// What memory is allocated for: every thread says what it is working on, and allocations are filed under it.

enum class MemoryUse {
  parameters,
  gradients,    ///< the parameters' gradients
  optimizer,    ///< the optimizer's state
  activations,  ///< whatever the forward pass allocates
  batches,      ///< batches in the loader and on the device
  other         ///< gradients of activations, temporary memory, everything else
};

struct MemoryLabel {
  MemoryUse use = MemoryUse::other;
  const char* phase = "";             ///< "forward", "backward"
  const std::string* unit = nullptr;  ///< the model's unit; null outside units. Must outlive everything filed under it.

  bool operator==(const MemoryLabel&) const = default;
};

/// Files this thread's allocations under `label` during its lifetime; the innermost scope of a thread counts. Costs a
/// few nanoseconds. Memory that a GPU's backward thread allocates belongs to the scope of the thread that waits for it.
class MemoryScope {
 public:
  explicit MemoryScope(const MemoryLabel& label);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  /// This thread's pointer to the label of its innermost scope; without one, to the label `other`.
  static const MemoryLabel* const& current();

 private:
  MemoryLabel label_;
  const MemoryLabel* outer_;
};

/// The memory of all CPU tensors of this process, in bytes as requested.
struct TensorMemory {
  int64_t live = 0;
  int64_t peak = 0;  ///< the largest `live` since the last reset_cpu_tensor_peak()
};
/// nullopt before install_counting_allocator() and install_caching_allocator().
std::optional<TensorMemory> cpu_tensor_memory();
void reset_cpu_tensor_peak();
/// Bytes of CPU tensors that this thread has allocated, less those that it has freed: the difference between two
/// moments is what its work has left, whatever other threads do. 0 if nobody counts.
int64_t cpu_tensor_bytes_of_thread();

/// Hears of every allocation and release of a tensor's memory, on any thread. Must not allocate tensors.
class MemoryListener {
 public:
  virtual ~MemoryListener() = default;
  /// `label`: what the allocating thread is working on.
  virtual void allocated(const void* address, int64_t bytes, const MemoryLabel& label) = 0;
  virtual void released(const void* address, int64_t bytes) = 0;
};

/// Passes allocations on `device` to the listener during its lifetime. On the CPU these are all threads' allocations
/// from the counting or caching allocator; on a GPU those of this thread and of the backward passes that it starts.
class ListenToMemory {
 public:
  /// At most one listens to the CPU. `listener` must outlive it. On a GPU, destroy it on the same thread, after
  /// everything that listens to this thread's operations and began later.
  ListenToMemory(c10::Device device, MemoryListener& listener);
  ~ListenToMemory();
  ListenToMemory(const ListenToMemory&) = delete;
  ListenToMemory& operator=(const ListenToMemory&) = delete;

  /// The listener hears no more, and allocations cost next to nothing again.
  void stop();

 private:
  class Reports;
  struct OnDevice;
  MemoryListener& listener_;
  std::unique_ptr<OnDevice> on_device_;
};

/// Allocates CPU tensors with malloc and counts them. Thread-safe.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &CountingAllocator::release; }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }

 protected:
  /// Precedes every block. A deleter gets only the data's address (oneDNN frees that way), so everything else must be
  /// stored next to it.
  struct alignas(64) Header {
    CountingAllocator* owner;  ///< null: the block is from malloc
    void* start;               ///< address returned by malloc or the kernel
    size_t bytes;              ///< the block's size, including the header
    size_t requested;          ///< the tensor's size
  };
  /// Counts the block and hands it out.
  c10::DataPtr hand_out(Header* header);
  static void release(void* data);

 private:
  /// Takes back a block of which this allocator is the owner.
  virtual void take_back(Header* header);
};

/// Makes all CPU tensors created from now on in this process use a CountingAllocator, unless they use one already.
void install_counting_allocator();

}  // namespace trainopt
