#include "device/gpu_error.h"

#include "device/device.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

// The codes are those of CUDA's runtime API, section "Error Handling"; the driver API uses the same numbers.
namespace trainopt {
namespace {

/// Any further CUDA work of the process fails after these errors, the documentation says. Most report a mistake in a
/// kernel; a launch that took too long, a Multi-Process Service that ended this client, a hardware stack error and a
/// destroyed context need not. None shows that the hardware is broken.
constexpr std::array kProgramFaults{
    cudaErrorIllegalAddress,     cudaErrorMisalignedAddress,  cudaErrorAssert,
    cudaErrorLaunchFailure,      cudaErrorInvalidPc,          cudaErrorInvalidAddressSpace,
    cudaErrorIllegalInstruction, cudaErrorHardwareStackError, cudaErrorLaunchTimeout,
    cudaErrorTensorMemoryLeak,   cudaErrorContextIsDestroyed, cudaErrorMpsClientTerminated};
constexpr std::array kHardwareFaults{cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorContained,
                                     cudaErrorExternalDevice};
/// In a process that has used the GPU these mean that it is gone, for example that it has fallen off the bus.
constexpr std::array kGpuGone{cudaErrorDevicesUnavailable, cudaErrorNoDevice, cudaErrorUnknown};

template <size_t kCount>
bool contains(const std::array<cudaError, kCount>& codes, int code) {
  return std::find(codes.begin(), codes.end(), static_cast<cudaError>(code)) != codes.end();
}

std::optional<GpuFault> fault_of(int code) {
  const bool hardware = contains(kHardwareFaults, code) || contains(kGpuGone, code);
  if (!hardware && !contains(kProgramFaults, code)) return std::nullopt;
  return GpuFault{.code = code, .text = cudaGetErrorString(static_cast<cudaError_t>(code)), .hardware = hardware};
}

/// NCCL, the driver's wrappers and this project's kernels put CUDA's words in theirs.
std::optional<GpuFault> fault_in(const std::string& message) {
  const auto search = [&](const auto& codes) -> std::optional<GpuFault> {
    for (const cudaError code : codes)
      if (message.find(cudaGetErrorString(code)) != std::string::npos) return fault_of(code);
    return std::nullopt;
  };
  if (const auto fault = search(kHardwareFaults)) return fault;
  return search(kProgramFaults);
}

/// The fault that earlier work of this thread's GPU left behind. Creates no context.
std::optional<GpuFault> fault_left_behind() {
  if (c10::cuda::device_count() == 0 || !c10::cuda::hasPrimaryContext(c10::cuda::current_device())) return std::nullopt;
  // The call reads the context and changes nothing. cudaPeekAtLastError() would not do: cuDNN and cuBLAS may have a
  // CUDA runtime of their own, and the last error of this one may be of another kind. The relaxed mode permits any call
  // during a recording (CUDA's documentation of cudaThreadExchangeStreamCaptureMode). Whether the call may wait for the
  // device is not documented.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  const bool relaxed = cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
  size_t free = 0, total = 0;
  const cudaError_t error = cudaMemGetInfo(&free, &total);
  if (relaxed) cudaThreadExchangeStreamCaptureMode(&mode);
  cudaGetLastError();
  return fault_of(error);
}

}  // namespace

std::optional<GpuFault> gpu_fault(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error)) return std::nullopt;
  if (const auto* accelerator = dynamic_cast<const c10::AcceleratorError*>(&error)) {
    if (auto fault = fault_of(accelerator->get_error_code())) return fault;
  }
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  if (auto fault = fault_in(torch ? torch->what_without_backtrace() : error.what())) return fault;
  // NCCL's errors have CUDA's words. Without them it was a time-out or a lost rank, and this GPU may still be waiting.
  if (dynamic_cast<const UserError*>(&error) || dynamic_cast<const c10::DistError*>(&error)) return std::nullopt;
  return fault_left_behind();
}

StartError start_error(int code) {
  const auto problem = [&] {
    switch (static_cast<cudaError_t>(code)) {
      case cudaSuccess:
        return GpuProblem::none;
      case cudaErrorInsufficientDriver:
        return GpuProblem::old_driver;
      case cudaErrorNoDevice:
        return GpuProblem::no_gpu;
      case cudaErrorOperatingSystem:
      case cudaErrorNotPermitted:
        return GpuProblem::no_permission;
      case cudaErrorSystemNotReady:
        return GpuProblem::not_ready;
      case cudaErrorSystemDriverMismatch:
      case cudaErrorCompatNotSupportedOnDevice:
        return GpuProblem::version_mismatch;
      case cudaErrorStubLibrary:
        return GpuProblem::stub_library;
      case cudaErrorMpsConnectionFailed:
      case cudaErrorMpsRpcFailure:
      case cudaErrorMpsServerNotReady:
      case cudaErrorMpsMaxClientsReached:
      case cudaErrorMpsMaxConnectionsReached:
        return GpuProblem::mps;
      case cudaErrorDeviceNotLicensed:
        return GpuProblem::unlicensed;
      case cudaErrorDevicesUnavailable:
      case cudaErrorDeviceAlreadyInUse:
        return GpuProblem::busy;
      case cudaErrorMemoryAllocation:
        return GpuProblem::out_of_memory;
      default:
        return GpuProblem::other;
    }
  }();
  return {problem, cudaGetErrorString(static_cast<cudaError_t>(code))};
}

StartError open_gpu(int index) {
  // libtorch may skip cudaSetDevice() for GPU 0, which every thread starts with, and so create no context.
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaFree(nullptr);
  cudaGetLastError();  // it is reported here, and must not appear again in the next call
  return start_error(error);
}

}  // namespace trainopt
