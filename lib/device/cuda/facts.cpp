#include "device/facts.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <cuda_runtime_api.h>

#include <fmt/format.h>

namespace trainopt {
namespace {

constexpr int kMinDriver = 580;  // the first for CUDA 13

/// CUDA encodes 13.0 as 13000.
std::string cuda_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// What to do about an error of cudaGetDeviceCount(). The codes are those of CUDA's runtime API, section "Error
/// Handling".
std::string remedy(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice:
      return "check that nvidia-smi lists a GPU, that this user or container may open /dev/nvidia*, and that "
             "CUDA_VISIBLE_DEVICES hides not all of them";
    case cudaErrorOperatingSystem:
      return "check that this user or container may open /dev/nvidia*";
    case cudaErrorSystemNotReady:
      return "start NVIDIA's Fabric Manager, which GPUs behind NVSwitch need";
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      return "the driver's library and its kernel module differ in version: restart the machine, or remove "
             "cuda-compat from the library path";
    default:
      return "check that nvidia-smi works, and restart the machine after a driver update";
  }
}

}  // namespace

std::string gpu_trouble() {
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return {};  // libcuda.so.1 was not found
  const cudaError_t error = cudaGetDeviceCount(&count);
  cudaGetLastError();  // it is reported here, and must not appear again in the next call
  if (error == cudaSuccess && count > 0) return {};
  if (error == cudaErrorInsufficientDriver)
    return fmt::format(
        "the NVIDIA driver is too old: it supports CUDA {}, this program needs {}; install driver {} or "
        "newer",
        cuda_version_text(driver), cuda_version_text(CUDART_VERSION), kMinDriver);
  const cudaError_t reported = error == cudaSuccess ? cudaErrorNoDevice : error;
  return fmt::format("the NVIDIA driver offers no GPU ({}): {}", cudaGetErrorString(reported), remedy(reported));
}

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
