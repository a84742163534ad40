#include "device/gpu_error.h"

#include "device/device.h"

namespace trainopt {
namespace {

std::string fault_sentence(const GpuFault& fault, const std::string& where, std::optional<int64_t> saved_step) {
  return fmt::format(
      "{} this process's CUDA context is lost, so nothing was retried or saved; {}{}: {} (CUDA error {}){}",
      fault.hardware ? "the GPU or its driver failed:" : "an operation on the GPU failed:",
      saved_step ? fmt::format("resume from the checkpoint of step {}, and ", *saved_step) : "",
      fault.hardware ? "look for Xid messages in dmesg; if it happens again, use another GPU or reset this one"
                     : "if it happens again, set CUDA_LAUNCH_BLOCKING=1 to see which operation it is",
      fault.text, fault.code, where.empty() ? "" : ", " + where);
}

}  // namespace

GpuLost::GpuLost(const GpuFault& fault, const std::string& where, std::optional<int64_t> saved_step)
    : UserError(fault_sentence(fault, where, saved_step), fault.hardware ? ExitCode::hardware : ExitCode::bug) {}

bool is_gpu_lost(const std::exception& error) { return dynamic_cast<const GpuLost*>(&error) || gpu_fault(error); }

std::string gpu_label(c10::Device device, const std::string& name, const std::string& uuid) {
  return fmt::format("{}{}{}", device.str(), name.empty() ? "" : ", " + name, uuid.empty() ? "" : ", " + uuid);
}

std::string remedy(GpuProblem problem) {
  switch (problem) {
    case GpuProblem::none:
      return "";
    case GpuProblem::old_driver:
      return fmt::format("install driver {} or newer", kMinDriver);
    case GpuProblem::no_gpu:
      return "check that nvidia-smi lists a GPU and, in a container, that it was started with GPUs (docker run --gpus "
             "all)";
    case GpuProblem::no_permission:
      return "check that this user or container may open /dev/nvidia*, and that the kernel module nvidia-uvm is loaded";
    case GpuProblem::not_ready:
      return "start NVIDIA's Fabric Manager, which GPUs behind NVSwitch need (systemctl start nvidia-fabricmanager)";
    case GpuProblem::version_mismatch:
      return "the driver's library and its kernel module differ in version: restart the machine, or remove cuda-compat "
             "from the library path";
    case GpuProblem::stub_library:
      return "libcuda.so.1 is the CUDA toolkit's stub: remove its folder from LD_LIBRARY_PATH";
    case GpuProblem::mps:
      return "check the server of CUDA's Multi-Process Service, or unset CUDA_MPS_PIPE_DIRECTORY";
    case GpuProblem::unlicensed:
      return "give this virtual GPU a licence";
    case GpuProblem::busy:
      return "end the process that uses it (nvidia-smi lists processes), allow several with nvidia-smi -c DEFAULT, or "
             "choose another GPU with device: cuda:N; if no process uses it, reset it or restart the machine";
    case GpuProblem::out_of_memory:
      return "no memory is left for a CUDA context: end other processes on it (nvidia-smi lists them), or "
             "choose another GPU with device: cuda:N";
    case GpuProblem::other:
      break;
  }
  return "check that nvidia-smi works and look for Xid messages in dmesg; reset the GPU or restart the machine, also "
         "after a driver update";
}

UserError opening_failed(const StartError& error, const std::string& label) {
  return UserError(fmt::format("the GPU cannot be used ({}): {}: {}", error.text, remedy(error.problem), label),
                   error.problem == GpuProblem::out_of_memory ? ExitCode::memory : ExitCode::recipe);
}

void open_device(c10::Device device) {
  if (device.is_cpu()) return;
  const StartError error = open_gpu(with_index(device).index());
  if (error.problem == GpuProblem::none) return;
  const DeviceFacts facts = device_facts(device);
  throw opening_failed(error, gpu_label(with_index(device), facts.name, facts.uuid));
}

}  // namespace trainopt
