#include "device/facts.h"

#include <ATen/cuda/CUDAContextLight.h>

#include <fmt/format.h>

namespace trainopt {

DeviceFacts gpu_facts(int index) {
  const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
  return {.name = properties.name,
          .sm_major = properties.major,
          .sm_minor = properties.minor,
          .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
          .multiprocessors = properties.multiProcessorCount,
          // NVML's format. CUDA omits the function number, which is 0 for every GPU.
          .pci_bus_id = fmt::format("{:08X}:{:02X}:{:02X}.0", properties.pciDomainID, properties.pciBusID,
                                    properties.pciDeviceID)};
}

}  // namespace trainopt
