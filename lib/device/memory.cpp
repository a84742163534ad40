#include "device/memory.h"

#include "base/error.h"
#include "device/device.h"
#include "device/gpu_error.h"
#include "device/process.h"
#include "device/tensor.h"
#include "device/tensor_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <sys/resource.h>

#include <malloc.h>

#include <fstream>
#include <new>
#include <string>

namespace trainopt {

std::optional<MemoryStats> memory_stats(c10::Device device) {
  if (device.is_cpu()) {
    const auto tensors = cpu_tensor_memory();
    if (!tensors) return std::nullopt;
    static const int64_t capacity = allowed_memory_bytes();
    return MemoryStats{.allocated = tensors->live, .peak_allocated = tensors->peak, .capacity = capacity};
  }
  if (device.is_meta()) return MemoryStats{};
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device.type());
  if (!allocator->initialized()) return MemoryStats{};
  const c10::DeviceIndex index = with_index(device).index();
  const auto stats = allocator->getDeviceStats(index);
  const auto& allocated = stats.allocated_bytes[0];  // [0]: large and small blocks together
  const auto& reserved = stats.reserved_bytes[0];
  return MemoryStats{.allocated = allocated.current,
                     .reserved = reserved.current,
                     .active = stats.active_bytes[0].current,
                     .inactive_split = stats.inactive_split_bytes[0].current,
                     .peak_allocated = allocated.peak,
                     .peak_reserved = reserved.peak,
                     .capacity = device.is_cuda() ? gpu_facts(index).memory_bytes : 0,
                     .segments = stats.segment[0].current,
                     .device_allocs = stats.num_device_alloc,
                     .device_frees = stats.num_device_free,
                     .retries = stats.num_alloc_retries,
                     .ooms = stats.num_ooms};
}

std::optional<int64_t> free_memory_bytes(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  const auto stats = memory_stats(device).value();
  const auto [free, total] = c10::getDeviceAllocator(device.type())->getMemoryInfo(with_index(device).index());
  return static_cast<int64_t>(free) + stats.reserved - stats.allocated;
}

double peak_memory_mib(c10::Device device) {
  if (!device.is_cpu()) return static_cast<double>(memory_stats(device).value().peak_reserved) / 0x1p20;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024.0;  // "VmHWM:   123456 kB"
  return 0;
}

int64_t page_faults() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void release_cached_memory(c10::Device device) {
  if (!device.is_cpu()) c10::getDeviceAllocator(device.type())->emptyCache();
}

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const c10::OutOfMemoryError*>(&error)) return true;
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  const std::string message = torch ? torch->what_without_backtrace() : error.what();
  // libtorch's words for the errors of CUDA, cuBLAS and cuDNN, and those of this project's kernels. cuDNN finds no
  // engine if there is no memory for one.
  for (const char* text :
       {"not enough memory", "CUDA error: out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDNN_STATUS_ALLOC_FAILED", "unable to find an engine to execute this computation",
        "kernel launch failed: out of memory"})
    if (message.find(text) != std::string::npos)
      return !gpu_fault(error);  // cuDNN finds no engine after a fault either
  return false;
}

void reset_peak_memory(c10::Device device) {
  if (device.is_cpu()) return reset_cpu_tensor_peak();
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device.type());
  if (allocator->initialized()) allocator->resetPeakStats(with_index(device).index());
}

void keep_freed_heap(const std::map<std::string, std::string>& environment) {
  constexpr int kLargestBlock = 32 << 20, kNever = -1;
  const auto tunables = environment.find("GLIBC_TUNABLES");
  if (tunables != environment.end() && tunables->second.find("glibc.malloc.") != std::string::npos) return;
  for (const auto& [name, value] : environment)
    if (name.starts_with("MALLOC_")) return;
  ::mallopt(M_MMAP_THRESHOLD, kLargestBlock);
  ::mallopt(M_TRIM_THRESHOLD, kNever);
}

at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat memory_format, bool pinned) {
  if (pinned && !cuda_available())
    throw UserError("pinned memory needs a GPU and this process sees none: set data.pin_memory to false");
  const at::Tensor tensor =
      at::empty(sizes, at::TensorOptions().dtype(dtype).device(at::kCPU).pinned_memory(pinned), memory_format);
  TRAINOPT_CHECK(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64 == 0);
  return tensor;
}

}  // namespace trainopt
