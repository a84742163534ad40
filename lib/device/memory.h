// What libtorch's caching allocator holds of a device's memory.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <optional>

namespace trainopt {

/// Bytes, and counts since the process began. reserved includes what the cache keeps free.
struct MemoryFigures {
  int64_t allocated = 0, reserved = 0;
  int64_t peak_allocated = 0, peak_reserved = 0;  ///< since the last reset_peak_memory()
  int64_t retries = 0;                            ///< allocations that emptied the cache first: memory is nearly full
  int64_t ooms = 0;
};
/// Without waiting for the device. nullopt on the CPU, whose allocator keeps no figures; zeros before the GPU's first
/// use.
std::optional<MemoryFigures> memory_figures(c10::Device device);
/// Bytes that can still be allocated: free on the device or kept free by libtorch's allocator. nullopt on the CPU,
/// where nobody can say.
std::optional<int64_t> free_memory_bytes(c10::Device device);
/// Most memory so far, in MiB: on a GPU what libtorch's allocator took since the last reset, on the CPU the largest
/// resident size of this process (VmHWM; getrusage's figure also counts the program that started it).
double peak_memory_mib(c10::Device device);
/// Gives what libtorch's allocator keeps free back to the device. Nothing on the CPU.
void release_cached_memory(c10::Device device);
/// Whether libtorch or the language could not allocate, on whichever device. libtorch has no type for a CPU allocation
/// that failed, only a text.
bool is_out_of_memory(const std::exception& error);
/// The peaks start again from what is in use now. Nothing on the CPU.
void reset_peak_memory(c10::Device device);

}  // namespace trainopt
