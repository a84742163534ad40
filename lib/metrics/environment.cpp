#include "metrics/environment.h"

#include "device/device.h"
#include "device/process.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/version.h>

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

namespace trainopt {
namespace {

/// CUDA encodes 13.0 as 13000; cuDNN encodes 9.19.0 as 91900.
Json cuda_version() {
  if (!at::detail::getCUDAHooks().hasCUDART()) return nullptr;
  const long version = at::detail::getCUDAHooks().versionCUDART();
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Json cudnn_version() {
  if (!at::detail::getCUDAHooks().compiledWithCuDNN()) return nullptr;
  const long version = at::detail::getCUDAHooks().versionCuDNN();
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

Json distribution() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("PRETTY_NAME=\"") && line.ends_with('"')) return line.substr(13, line.size() - 14);
  return nullptr;
}

Json kernel() {
  utsname names{};
  if (uname(&names) != 0) return nullptr;
  return fmt::format("{} {}", names.sysname, names.release);
}

Json gpus() {
  Json list = Json::array();
  for (int index = 0; index < cuda_count(); ++index) {
    const DeviceFacts facts = device_facts(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)));
    list.push_back({{"index", index},
                    {"name", facts.name},
                    {"compute_capability", fmt::format("{}.{}", facts.sm_major, facts.sm_minor)},
                    {"memory_mib", facts.memory_bytes >> 20},
                    {"multiprocessors", facts.multiprocessors},
                    {"pci_bus_id", facts.pci_bus_id}});
  }
  return list;
}

}  // namespace

Json environment(const ProgramVersion& program, const Reasons& not_measured, const std::string& nvml_library) {
  const DeviceFacts cpu = device_facts(c10::Device(c10::kCPU));
  const auto driver = GpuProbe::driver_version(nvml_library);
  Json json;
  json["schema_version"] = 1;
  json["trainopt"] = program.number;
  json["commit"] = program.commit;
  json["libtorch"] = TORCH_VERSION;
  json["cuda"] = cuda_version();
  json["cudnn"] = cudnn_version();
  json["cpu"] = {{"model", cpu.name},
                 {"cores_allowed", cpu.multiprocessors},
                 {"cores_online", sysconf(_SC_NPROCESSORS_ONLN)},
                 {"instructions", at::get_cpu_capability()},
                 {"threads", at::get_num_threads()}};
  json["memory_mib"] = cpu.memory_bytes >> 20;
  json["gpus"] = gpus();
  json["driver"] = driver ? Json(*driver) : Json(nullptr);
  json["kernel"] = kernel();
  json["distribution"] = distribution();
  json["not_measured"] = Json::object();
  for (const auto& [metric, reason] : not_measured) json["not_measured"][metric] = reason;
  return json;
}

}  // namespace trainopt
