// Statistics of a device's tensor memory: of libtorch's caching allocator on a GPU, of the counting allocator on the
// CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <string>

namespace trainopt {

/// Bytes, and counts since the process started. `reserved` includes free memory in the cache.
struct MemoryStats {
  int64_t allocated = 0, reserved = 0;
  int64_t active = 0;          ///< `allocated`, and freed memory that another stream may still use
  int64_t inactive_split = 0;  ///< free parts of segments that are partly in use: cannot be returned to the device
  int64_t peak_allocated = 0, peak_reserved = 0;  ///< since the last reset_peak_memory()
  int64_t capacity = 0;                           ///< the device's memory; 0: not known
  int64_t segments = 0;                           ///< contiguous pieces of memory that are reserved now
  int64_t device_allocs = 0, device_frees = 0;    ///< requests for memory of the driver, and returns to it
  int64_t retries = 0;  ///< allocations that first had to empty the cache: memory is nearly full
  int64_t ooms = 0;
};
/// Does not wait for the device. On the CPU only `allocated` and its peak are counted, and nullopt is returned before
/// tensors are counted (tensor_memory.h). Zeros before the GPU is first used, and for the meta device.
std::optional<MemoryStats> memory_stats(c10::Device device);
/// Bytes that can still be allocated: free on the device, or free in libtorch's cache. nullopt on the CPU, where this
/// is not known.
std::optional<int64_t> free_memory_bytes(c10::Device device);
/// Peak memory in MiB: on a GPU, the most that libtorch's allocator reserved since the last reset; on the CPU, the
/// largest resident size of this process (VmHWM, because getrusage's figure also counts the program that started it).
double peak_memory_mib(c10::Device device);
/// Minor page faults (no disk access) of this process since it started: each maps a page of memory when it is first
/// used.
int64_t page_faults();
/// Returns free memory in libtorch's cache to the device. Does nothing on the CPU.
void release_cached_memory(c10::Device device);
/// Whether `error` is a failed allocation, by libtorch or the language, on any device. A failed CPU allocation in
/// libtorch has no exception type of its own and is recognised by its message.
bool is_out_of_memory(const std::exception& error);
/// Resets the peaks to the memory now in use.
void reset_peak_memory(c10::Device device);

// The heap of the C library, in which CPU tensors lie unless an allocator of our own or a preloaded one takes its
// place.

/// glibc's malloc returns the free end of its heap to the kernel. Where a step's tensors lie there, it does so in every
/// step, and the next one pays a page fault for each page again. After this call the main thread's heap never shrinks.
/// Heaps of other threads still do, and blocks above 32 MiB, the most that mallopt() accepts, still come from the
/// kernel each time. Does nothing if `environment`, that of this process, has settings of malloc.
void keep_freed_heap(const std::map<std::string, std::string>& environment);

// Host memory for batches and for results copied back from a device.

/// An uninitialised CPU tensor, 64-byte aligned. `pinned`: page-locked, so that a GPU can copy it while the host
/// continues (allocate once and reuse, because locking pages takes milliseconds). Throws UserError if `pinned` is set
/// and there is no GPU.
at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType dtype,
                       at::MemoryFormat memory_format = at::MemoryFormat::Contiguous, bool pinned = false);

// The history of a GPU's memory as libtorch's allocator records it, for PyTorch's memory viewer
// (docs.pytorch.org/memory_viz).

/// Records allocations and releases on the GPUs of this process from now on, the latest `max_events` of them. Does
/// nothing without libtrainopt_cuda.so.
void record_gpu_memory_history(size_t max_events);

/// Ends that, and forgets what was recorded.
void end_gpu_memory_history();

/// What was recorded, with the state of the allocator, as a pickle. Empty without libtrainopt_cuda.so.
std::string gpu_memory_snapshot();

}  // namespace trainopt
