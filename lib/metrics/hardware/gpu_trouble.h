// Why this machine's GPUs cannot be used, in one sentence that says what to do.
#pragma once

#include "device/device.h"
#include "metrics/hardware/gpu_probe.h"
#include "metrics/hardware/nvml.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// CUDA encodes 13.0 as 13000.
std::string cuda_version_text(int64_t version);

/// What the sentences are made from. CUDA's error code alone does not tell a hidden GPU from a forbidden or a lost one.
struct GpuEvidence {
  CudaStart cuda;
  std::optional<std::string> visible_devices;  ///< the environment variable CUDA_VISIBLE_DEVICES
  std::vector<std::string> device_files;       ///< the driver's files, /dev/nvidia0 and others
  std::vector<std::string> forbidden_files;    ///< `device_files` that this process may not open
  std::vector<SeenGpu> gpus;
};
GpuEvidence gpu_evidence(const std::optional<std::string>& visible_devices,
                         const std::string& nvml_library = kNvmlLibrary, const std::filesystem::path& dev = "/dev");

/// Why no GPU can be used although NVIDIA's driver is installed, and what to do, without a full stop. Empty if there is
/// no driver at all, if a GPU can be used, and in a build without CUDA on a machine without a GPU.
std::string gpu_trouble(const GpuEvidence& evidence);

/// Why one GPU that CUDA offers, `facts`, cannot be used, and what to do. Empty if nothing is known against it.
std::string trouble_with(const DeviceFacts& facts, const GpuEvidence& evidence);
/// What a user of this GPU should know: it is in exclusive mode and in use, or an instance of a GPU in MIG mode. Empty
/// if there is nothing.
std::string caution_about(const DeviceFacts& facts, const GpuEvidence& evidence);

/// "GPU 3 is lost …" for each GPU that the driver has lost, although others may work.
std::vector<std::string> lost_gpus(const GpuEvidence& evidence);

}  // namespace trainopt
