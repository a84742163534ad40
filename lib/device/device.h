// Which devices this machine has, their properties, and waiting for a device.
#pragma once

#include "device/gpu_error.h"

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
/// Why a GPU with compute capability `sm` (70 for sm_70) below kMinSm cannot be used, and what to do.
std::string why_too_old(const std::string& name, int sm);

/// The oldest NVIDIA driver for this program: the first for CUDA 13.
inline constexpr int kMinDriver = 580;

enum class GpuProblem;  // gpu_error.h

/// What CUDA answered when this process first asked it for GPUs. CUDA encodes version 13.0 as 13000.
struct CudaStart {
  bool built_for_cuda = false;  ///< whether this program was built for GPUs
  std::string library_problem;  ///< cuda_library_problem(); if it is not empty, CUDA was not asked
  int program_cuda = 0;         ///< the version that this program was built for; 0 if CUDA was not asked
  int64_t libtorch_cuda = 0;    ///< the version that the libtorch found was built for; 0 if CUDA was not asked
  int driver_cuda = 0;          ///< the newest version that the driver supports; 0: no driver is installed
  int gpus = 0;
  GpuProblem problem{};  ///< GpuProblem::none if there is a GPU or no driver
  std::string error;     ///< CUDA's own words
};
/// Asks CUDA once; later calls return the first answer, because CUDA does not find new GPUs in a running process, and
/// after a fault it answers nothing.
const CudaStart& start_cuda();

struct DeviceFacts {
  std::string name;  ///< "NVIDIA H100 80GB HBM3"; the CPU's model name
  int sm_major = 0;  ///< compute capability; 0 on the CPU
  int sm_minor = 0;
  int64_t memory_bytes = 0;  ///< the GPU's memory, or the machine's
  int multiprocessors = 0;   ///< streaming multiprocessors; on the CPU, the cores this process may use
  std::string uuid;          ///< "GPU-5b0c4d6e-…" as in nvidia-smi -L; empty on the CPU
  std::string
      pci_bus_id;  ///< "00000000:1B:00.0", in NVML's format, independent of CUDA_VISIBLE_DEVICES; empty on the CPU
};
/// `device`: the CPU or a GPU of this process (no index: the current one). Throws UserError if there is no such GPU.
DeviceFacts device_facts(c10::Device device);

/// `device` with its index filled in ("cuda" becomes "cuda:0"); the CPU has none.
c10::Device with_index(c10::Device device);

/// Creates a random number generator on the device, independent of all others in this process.
at::Generator make_generator(c10::Device device, uint64_t seed);

/// Makes a GPU this thread's current one, so that CUDA creates no context (0.5 GB) on GPU 0 for a rank that uses
/// another. Does nothing for the CPU.
void use_device(c10::Device device);

/// Waits until everything queued on the device has run. Does nothing on the CPU.
void synchronize(c10::Device device);

// The functions below need CUDA's own headers and so live in libtrainopt_cuda.so (cuda_library.h).

/// Facts of GPU `index`, which must exist.
DeviceFacts gpu_facts(int index);

struct StartError {
  GpuProblem problem = GpuProblem::none;
  std::string text;  ///< CUDA's own words
};
/// CUDA's error `code`, seen while CUDA starts.
StartError start_error(int code);
/// Why the GPU `label` (gpu_label()) cannot be opened; exit code memory or recipe.
UserError opening_failed(const StartError& error, const std::string& label);
/// Makes GPU `index` this thread's current one and creates its context.
StartError open_gpu(int index);

}  // namespace trainopt
