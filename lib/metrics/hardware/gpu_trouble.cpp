#include "metrics/hardware/gpu_trouble.h"

#include "device/gpu_error.h"
#include "metrics/hardware/nvml.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace trainopt {
namespace {

std::string label(const SeenGpu& gpu) {
  return fmt::format("GPU {}{}{}", gpu.index, gpu.name.empty() ? "" : ", " + gpu.name,
                     gpu.uuid.empty() ? "" : ", " + gpu.uuid);
}

std::string loss_sentence(const SeenGpu& gpu) {
  return fmt::format(
      "the driver has lost a GPU; look for Xid messages in dmesg, then reset it (nvidia-smi --gpu-reset -i {}) or "
      "restart the machine: {} (NVML: {})",
      gpu.index, label(gpu), gpu.lost);
}

std::string prohibited_sentence(const SeenGpu& gpu) {
  return fmt::format("the GPU's compute mode allows no process; change it with nvidia-smi -i {} -c DEFAULT: {}",
                     gpu.index, label(gpu));
}

bool all_of(const std::vector<SeenGpu>& gpus, bool (*matches)(const SeenGpu&)) {
  return !gpus.empty() && std::all_of(gpus.begin(), gpus.end(), matches);
}

/// Whether CUDA_VISIBLE_DEVICES names no GPU. CUDA ignores the first entry that names none and all entries after it. An
/// entry may be an index or the beginning of a UUID. Instances of a GPU in MIG mode are not judged.
bool hides_all(const std::string& visible_devices, const std::vector<SeenGpu>& gpus) {
  const std::string entry = visible_devices.substr(0, visible_devices.find(','));
  if (entry.empty() || entry == "NoDevFiles" || entry.starts_with('-')) return true;
  if (gpus.empty()) return false;
  if (entry.starts_with("GPU-"))
    return std::none_of(gpus.begin(), gpus.end(),
                        [&](const SeenGpu& gpu) { return gpu.uuid.empty() || gpu.uuid.starts_with(entry); });
  size_t index = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  return error == std::errc() && end == entry.data() + entry.size() && index >= gpus.size();
}

/// "nvidia0": the file of one GPU, as opposed to those that every process with a GPU opens.
bool is_gpu_file(const std::filesystem::path& file) {
  const std::string name = file.filename();
  return name.size() > 6 && name.starts_with("nvidia") && name.find_first_not_of("0123456789", 6) == std::string::npos;
}

/// Without one of the common files no GPU can be used. Of the GPUs' files a batch system may allow a job only some.
bool forbids_all(const GpuEvidence& evidence) {
  const auto& forbidden = evidence.forbidden_files;
  const auto gpu_files = std::count_if(evidence.device_files.begin(), evidence.device_files.end(), is_gpu_file);
  const auto forbidden_gpus = std::count_if(forbidden.begin(), forbidden.end(), is_gpu_file);
  return std::ssize(forbidden) > forbidden_gpus || (gpu_files > 0 && forbidden_gpus == gpu_files);
}

/// CUDA found no GPU: whether it is forbidden, lost, in MIG mode without instances, or hidden.
std::string why_none_found(const GpuEvidence& evidence) {
  if (forbids_all(evidence))
    return fmt::format(
        "this process may not open the NVIDIA driver's files; give this user the permission (ls -l /dev/nvidia*), or "
        "start the container with GPUs (docker run --gpus all): {}",
        fmt::join(evidence.forbidden_files, ", "));
  if (all_of(evidence.gpus, [](const SeenGpu& gpu) { return !gpu.lost.empty(); }))
    return loss_sentence(evidence.gpus.front());
  if (all_of(evidence.gpus, [](const SeenGpu& gpu) { return gpu.prohibited; }))
    return prohibited_sentence(evidence.gpus.front());
  if (all_of(evidence.gpus, [](const SeenGpu& gpu) { return gpu.mig.value_or(false) && gpu.mig_instances == 0; }))
    return fmt::format(
        "the GPU is in MIG mode and has no instance for this process; create one (nvidia-smi mig -i {0} -cgi PROFILE "
        "-C), or leave MIG mode (nvidia-smi -i {0} -mig 0): {1}",
        evidence.gpus.front().index, label(evidence.gpus.front()));
  const auto& visible = evidence.visible_devices;
  const bool found_none = evidence.cuda.problem == GpuProblem::no_gpu && !evidence.gpus.empty();
  if (visible && (found_none || hides_all(*visible, evidence.gpus)))
    return fmt::format(
        "CUDA_VISIBLE_DEVICES hides all GPUs; unset it, or set it to GPUs that nvidia-smi -L lists: "
        "CUDA_VISIBLE_DEVICES={}",
        visible->empty() ? "\"\"" : *visible);
  return {};
}

/// libtrainopt_cuda.so opens with such a libtorch only where the CUDA runtime that it needs is installed apart from
/// PyTorch.
std::string why_libtorch_does_not_fit(const CudaStart& cuda) {
  if (cuda.libtorch_cuda / 1000 == cuda.program_cuda / 1000) return {};
  return fmt::format(
      "the libtorch found was built for CUDA {}, this program for CUDA {}; install the PyTorch build for that CUDA, or "
      "build the program again with this one",
      cuda_version_text(cuda.libtorch_cuda), cuda_version_text(cuda.program_cuda));
}

std::string why_built_without_cuda(const GpuEvidence& evidence) {
  const auto file = std::find_if(evidence.device_files.begin(), evidence.device_files.end(), is_gpu_file);
  if (evidence.gpus.empty() && file == evidence.device_files.end()) return {};
  return fmt::format(
      "this trainopt was built without CUDA; run scripts/setup --cuda, and the next start of scripts/trainopt builds "
      "it "
      "for GPUs: {}",
      evidence.gpus.empty() ? *file + " exists" : label(evidence.gpus.front()));
}

/// NVML's view of a GPU that CUDA offers; null without one.
const SeenGpu* seen_as(const DeviceFacts& facts, const GpuEvidence& evidence) {
  const auto found = std::find_if(evidence.gpus.begin(), evidence.gpus.end(),
                                  [&](const SeenGpu& gpu) { return gpu.pci_bus_id == facts.pci_bus_id; });
  return found == evidence.gpus.end() ? nullptr : &*found;
}

/// Does not open a GPU's file, which may initialise that GPU for a second. The common files are opened, because a
/// device cgroup forbids more than the permissions show.
bool is_forbidden(const std::filesystem::path& file) {
  if (::faccessat(AT_FDCWD, file.c_str(), R_OK | W_OK, AT_EACCESS) != 0) return errno == EACCES || errno == EPERM;
  if (is_gpu_file(file)) return false;
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  return descriptor < 0 && (error == EACCES || error == EPERM);
}

bool is_device_file(const std::filesystem::path& file) {
  return file.filename() == "nvidiactl" || file.filename() == "nvidia-uvm" || is_gpu_file(file);
}

}  // namespace

std::string cuda_version_text(int64_t version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

GpuEvidence gpu_evidence(const std::optional<std::string>& visible_devices, const std::string& nvml_library,
                         const std::filesystem::path& dev) {
  GpuEvidence evidence;
  evidence.cuda = start_cuda();
  evidence.visible_devices = visible_devices;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dev, error))
    if (is_device_file(entry.path())) evidence.device_files.push_back(entry.path());
  std::sort(evidence.device_files.begin(), evidence.device_files.end());
  if (evidence.cuda.gpus == 0)
    std::copy_if(evidence.device_files.begin(), evidence.device_files.end(),
                 std::back_inserter(evidence.forbidden_files), is_forbidden);
  evidence.gpus = seen_gpus(NvmlLibrary(nvml_library));
  return evidence;
}

std::string gpu_trouble(const GpuEvidence& evidence) {
  const CudaStart& cuda = evidence.cuda;
  if (!cuda.built_for_cuda) return why_built_without_cuda(evidence);
  if (!cuda.library_problem.empty()) return cuda.library_problem;
  if (cuda.driver_cuda == 0) {
    if (evidence.device_files.empty()) return {};
    return fmt::format(
        "the NVIDIA driver's library libcuda.so.1 is missing although its kernel module is loaded; "
        "install the driver's libraries, or start the container with GPUs (docker run --gpus all): {} exists",
        evidence.device_files.front());
  }
  if (auto sentence = why_libtorch_does_not_fit(cuda); !sentence.empty()) return sentence;
  switch (cuda.problem) {
    case GpuProblem::none:
      return {};
    case GpuProblem::old_driver:
      return fmt::format("the NVIDIA driver is too old: it supports CUDA {}, this program needs {}; {}",
                         cuda_version_text(cuda.driver_cuda), cuda_version_text(cuda.program_cuda),
                         remedy(cuda.problem));
    case GpuProblem::no_gpu:
    case GpuProblem::no_permission:
    case GpuProblem::busy:
    case GpuProblem::other:
      if (auto sentence = why_none_found(evidence); !sentence.empty()) return sentence;
      break;
    default:
      break;
  }
  return fmt::format("the NVIDIA driver offers no GPU ({}): {}", cuda.error, remedy(cuda.problem));
}

std::string trouble_with(const DeviceFacts& facts, const GpuEvidence& evidence) {
  if (auto sentence = why_libtorch_does_not_fit(evidence.cuda); !sentence.empty()) return sentence;
  if (const int sm = facts.sm_major * 10 + facts.sm_minor; sm < kMinSm) return why_too_old(facts.name, sm);
  const SeenGpu* seen = seen_as(facts, evidence);
  if (!seen) return {};
  if (!seen->lost.empty()) return loss_sentence(*seen);
  return seen->prohibited ? prohibited_sentence(*seen) : "";
}

std::string caution_about(const DeviceFacts& facts, const GpuEvidence& evidence) {
  const SeenGpu* seen = seen_as(facts, evidence);
  if (!seen) return {};
  if (seen->exclusive && !seen->processes.empty())
    return fmt::format(
        "the GPU is in exclusive mode and in use, so a run can start only through the Multi-Process Service or "
        "when the process has ended; nvidia-smi -i {} -c DEFAULT allows several: {}, process {}",
        seen->index, label(*seen), fmt::join(seen->processes, ", "));
  if (seen->mig.value_or(false))
    return fmt::format(
        "the GPU is a MIG instance: one rank can use it; several ranks on instances of one GPU, and measurements "
        "of its load, are not supported: {}",
        label(*seen));
  return {};
}

std::vector<std::string> lost_gpus(const GpuEvidence& evidence) {
  std::vector<std::string> sentences;
  for (const SeenGpu& gpu : evidence.gpus)
    if (!gpu.lost.empty()) sentences.push_back(loss_sentence(gpu));
  return sentences;
}

}  // namespace trainopt
