// Which devices this machine has, what they are, and waiting for one.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace trainopt {

/// A GPU, a driver and a build that can use them. Never throws; the first call starts the CUDA driver (some 100 ms).
bool cuda_available();
/// GPUs this process sees (after CUDA_VISIBLE_DEVICES); 0 without a driver.
int cuda_count();

struct DeviceFacts {
  std::string name;  ///< "NVIDIA H100 80GB HBM3"; the CPU's model name
  int sm_major = 0;  ///< compute capability; 0 on the CPU
  int sm_minor = 0;
  int64_t memory_bytes = 0;  ///< of the GPU, or of the machine
  int multiprocessors = 0;   ///< streaming multiprocessors; on the CPU the cores this process may use
  std::string
      pci_bus_id;  ///< "00000000:1B:00.0" as NVML writes it, whatever CUDA_VISIBLE_DEVICES says; empty on the CPU
};
/// `device` is the CPU or a GPU of this process (no index: the current one). Throws UserError if there is no such GPU.
DeviceFacts device_facts(c10::Device device);

/// The same device with its index filled in ("cuda" becomes "cuda:0"); the CPU has none.
c10::Device with_index(c10::Device device);

/// A source of random numbers on the device, apart from every other one in this process.
at::Generator make_generator(c10::Device device, uint64_t seed);

/// Waits until everything queued on the device has run. Nothing on the CPU.
void synchronize(c10::Device device);

}  // namespace trainopt
