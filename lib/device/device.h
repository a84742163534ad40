// Which devices this machine has, their properties, and waiting for a device.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace trainopt {

/// Whether there is a GPU, a driver and a build that can use them. Never throws; the first call initialises the CUDA
/// driver (about 100 ms).
bool cuda_available();
/// Number of GPUs this process sees (after CUDA_VISIBLE_DEVICES); 0 without a driver.
int cuda_count();

/// The oldest GPU that this program and libtorch have kernels for: sm_75, Turing.
inline constexpr int kMinSm = 75;

/// Why no GPU can be used although NVIDIA's driver is installed, and what to do, without a full stop. Empty if there is
/// no driver at all, if a GPU can be used, and in a build without CUDA.
std::string gpu_trouble();

struct DeviceFacts {
  std::string name;  ///< "NVIDIA H100 80GB HBM3"; the CPU's model name
  int sm_major = 0;  ///< compute capability; 0 on the CPU
  int sm_minor = 0;
  int64_t memory_bytes = 0;  ///< of the GPU, or of the machine
  int multiprocessors = 0;   ///< streaming multiprocessors; on the CPU, the cores this process may use
  std::string
      pci_bus_id;  ///< "00000000:1B:00.0", in NVML's format, independent of CUDA_VISIBLE_DEVICES; empty on the CPU
};
/// `device`: the CPU or a GPU of this process (no index: the current one). Throws UserError if there is no such GPU.
DeviceFacts device_facts(c10::Device device);

/// The same device with its index filled in ("cuda" becomes "cuda:0"); the CPU has none.
c10::Device with_index(c10::Device device);

/// Creates a random number generator on the device, independent of all others in this process.
at::Generator make_generator(c10::Device device, uint64_t seed);

/// Makes a GPU this thread's current one, so that CUDA creates no context (0.5 GB) on GPU 0 for a rank that uses
/// another. Does nothing for the CPU.
void use_device(c10::Device device);

/// Waits until everything queued on the device has run. Does nothing on the CPU.
void synchronize(c10::Device device);

}  // namespace trainopt
