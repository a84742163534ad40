#include "device/device.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <cuda_runtime_api.h>

#include <fmt/format.h>

namespace trainopt {
namespace {

/// In the form of nvidia-smi -L: "GPU-5b0c4d6e-…" (8-4-4-4-12 hexadecimal digits).
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i)
    text += fmt::format("{}{:02x}", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        static_cast<unsigned char>(uuid.bytes[i]));
  return text;
}

CudaStart ask_cuda() {
  CudaStart start{.built_for_cuda = true};
  start.program_cuda = CUDART_VERSION;
  // Libtorch has no hooks if it was asked for CUDA before a rehearsal of errors opened this library.
  const auto& hooks = at::detail::getCUDAHooks();
  start.libtorch_cuda = hooks.hasCUDART() ? hooks.versionCUDART() : CUDART_VERSION;
  // Without libcuda.so.1 the version is 0.
  if (cudaDriverGetVersion(&start.driver_cuda) != cudaSuccess || start.driver_cuda == 0) return start;
  const cudaError_t error = cudaGetDeviceCount(&start.gpus);
  cudaGetLastError();  // it is reported here, and must not appear again in the next call
  const auto [problem, text] = start_error(error == cudaSuccess && start.gpus == 0 ? cudaErrorNoDevice : error);
  start.problem = problem;
  start.error = text;
  return start;
}

}  // namespace

const CudaStart& start_cuda() {
  static const CudaStart start = ask_cuda();
  return start;
}

DeviceFacts gpu_facts(int index) {
  const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
  return {.name = properties.name,
          .sm_major = properties.major,
          .sm_minor = properties.minor,
          .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
          .multiprocessors = properties.multiProcessorCount,
          .uuid = uuid_text(properties.uuid),
          // NVML's format. CUDA omits the function number, which is 0 for every GPU.
          .pci_bus_id = fmt::format("{:08X}:{:02X}:{:02X}.0", properties.pciDomainID, properties.pciBusID,
                                    properties.pciDeviceID)};
}

}  // namespace trainopt
