// Errors of CUDA, told apart by what a user can do about them. libtorch, its libraries and this project's kernels
// report them with different exceptions; here they are recognised by CUDA's code or, without one, by CUDA's words.
#pragma once

#include "base/error.h"

#include <c10/core/Device.h>

#include <exception>
#include <optional>
#include <string>

namespace trainopt {

/// Why CUDA cannot start, or cannot use a GPU.
enum class GpuProblem {
  none,
  old_driver,        ///< older than the CUDA runtime
  no_gpu,            ///< the driver finds no GPU, or none that this process may use
  no_permission,     ///< the operating system refused a call of the driver
  not_ready,         ///< GPUs behind NVSwitch wait for Fabric Manager
  version_mismatch,  ///< the driver's library and its kernel module differ
  stub_library,      ///< the toolkit's libcuda.so.1, which is for linking only
  mps,               ///< the Multi-Process Service
  unlicensed,        ///< a virtual GPU without a licence
  busy,              ///< used exclusively by another process, compute mode "prohibited", or lost
  out_of_memory,     ///< no memory is left for a context
  other
};

/// What to do about a problem, as the end of a sentence.
std::string remedy(GpuProblem problem);

/// An error after which every further CUDA call of this process fails.
struct GpuFault {
  int code = 0;
  std::string text;       ///< CUDA's own words
  bool hardware = false;  ///< the GPU, its memory or its links are suspected, not the program
};

/// The fault, if `error` reports one or if one happened before it: libraries such as cuDNN report a fault as an error
/// of their own. Asks CUDA if the error's own words do not tell, except after errors of c10d; nullopt without
/// libtrainopt_cuda.so.
std::optional<GpuFault> gpu_fault(const std::exception& error);

/// A GPU fault. Nothing on the GPU can be read, saved or tried again in this process; even freeing its memory may fail.
/// Exit code: hardware if the hardware is suspected, otherwise bug.
class GpuLost : public UserError {
 public:
  /// `where`: what is known of the operation and the GPU, "in step 3, forward and backward, on cuda:0, …".
  /// `saved_step`: of the newest checkpoint, if there is one.
  GpuLost(const GpuFault& fault, const std::string& where, std::optional<int64_t> saved_step = std::nullopt);
};

/// Whether `error` is GpuLost or reports a fault.
bool is_gpu_lost(const std::exception& error);

/// "cuda:1, NVIDIA H100 80GB HBM3, GPU-5b0c…"; an empty name or UUID is left out. Makes no CUDA call.
std::string gpu_label(c10::Device device, const std::string& name, const std::string& uuid);

/// Makes `device` this thread's current one and creates CUDA's context on it. Does nothing on the CPU. Throws UserError
/// (recipe, or memory) that says why the GPU cannot be used, where CUDA says so only now: another process uses it
/// exclusively, it is lost, or its memory is full.
void open_device(c10::Device device);

}  // namespace trainopt
