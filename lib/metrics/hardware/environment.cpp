#include "metrics/hardware/environment.h"

#include "base/error.h"
#include "device/device.h"
#include "device/process.h"
#include "metrics/hardware/nvml.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <dlfcn.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace trainopt {
namespace {

Json cuda_version() {
  if (!at::detail::getCUDAHooks().hasCUDART()) return nullptr;
  return cuda_version_text(at::detail::getCUDAHooks().versionCUDART());
}

/// cuDNN encodes 9.19.0 as 91900.
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

/// The version of the NCCL that libtorch loaded; 2.28.9 is encoded as 22809. Null in a build without it.
Json nccl_version() {
  const auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  int version = 0;
  if (!get_version || get_version(&version) != 0) return nullptr;
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// What the kernel knows of the GPU's place: "0-23" and the NUMA node. Null where it does not tell.
void add_place(Json& gpu, const std::string& pci_bus_id, const std::filesystem::path& sys) {
  const auto folder = pci_folder(pci_bus_id, sys);
  const std::string cpus = first_line(folder / "local_cpulist"), node = first_line(folder / "numa_node");
  gpu["local_cpus"] = cpus.empty() ? Json() : Json(cpus);
  gpu["numa_node"] = node.empty() || node.starts_with('-') ? Json() : Json(std::stoi(node));  // -1: not known
}

void add_hardware(Json& gpu, const NvmlLibrary& nvml, const GpuEvidence& evidence, const std::filesystem::path& sys) {
  const std::string bus_id = gpu["pci_bus_id"];
  gpu.update(gpu_hardware(nvml, bus_id, evidence.gpus));
  const Json pcie = gpu.value("pcie", Json::object());
  if (pcie.value("generation", Json()).is_number() && pcie["generation"] < pcie["max_generation"])
    gpu["pcie"]["note"] = "an idle GPU lowers the generation of its link; look again under load";
  add_place(gpu, bus_id, sys);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json gpus(const NvmlLibrary& nvml, const GpuEvidence& evidence, const std::filesystem::path& sys) {
  Json list = Json::array();
  for (int index = 0; index < cuda_count(); ++index) {
    const DeviceFacts facts = device_facts(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)));
    Json gpu = {{"index", index},
                {"name", facts.name},
                {"uuid", facts.uuid},
                {"compute_capability", fmt::format("{}.{}", facts.sm_major, facts.sm_minor)},
                {"memory_mib", facts.memory_bytes >> 20},
                {"multiprocessors", facts.multiprocessors},
                {"pci_bus_id", facts.pci_bus_id},
                {"trouble", text_or_null(trouble_with(facts, evidence))},
                {"caution", text_or_null(caution_about(facts, evidence))}};
    add_hardware(gpu, nvml, evidence, sys);
    list.push_back(std::move(gpu));
  }
  return list;
}

/// GPUs of this machine that CUDA does not offer to this process.
Json other_gpus(const Json& gpus, const NvmlLibrary& nvml, const GpuEvidence& evidence,
                const std::filesystem::path& sys) {
  Json list = Json::array();
  for (const SeenGpu& seen : evidence.gpus) {
    if (std::any_of(gpus.begin(), gpus.end(), [&](const Json& gpu) { return gpu.at("pci_bus_id") == seen.pci_bus_id; }))
      continue;
    Json gpu = {{"nvidia_smi_index", seen.index},
                {"name", text_or_null(seen.name)},
                {"uuid", text_or_null(seen.uuid)},
                {"pci_bus_id", text_or_null(seen.pci_bus_id)}};
    if (!seen.pci_bus_id.empty()) add_hardware(gpu, nvml, evidence, sys);
    list.push_back(std::move(gpu));
  }
  return list;
}

/// Why GPUs cannot be used: all of them, or those that are lost.
Json trouble(const GpuEvidence& evidence) {
  const std::string all = gpu_trouble(evidence);
  return text_or_null(all.empty() ? fmt::format("{}", fmt::join(lost_gpus(evidence), "; ")) : all);
}

}  // namespace

Json infiniband_ports(const std::filesystem::path& sys) {
  Json list = Json::array();
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator(sys / "class/infiniband", error))
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", error)) {
      const std::string state = first_line(port.path() / "state"),  // "4: ACTIVE"
          rate = first_line(port.path() / "rate");                  // "400 Gb/sec (4X NDR)"
      const size_t word = state.find(": ");
      list.push_back({{"device", device.path().filename().string()},
                      {"port", port.path().filename().string()},
                      {"state", text_or_null(word == std::string::npos ? state : state.substr(word + 2))},
                      {"rate_gbit_per_s", rate.empty() ? Json() : Json(std::strtod(rate.c_str(), nullptr))},
                      {"link_layer", text_or_null(first_line(port.path() / "link_layer"))}});
    }
  const auto place = [](const Json& port) {
    return std::pair(port.at("device").get<std::string>(), port.at("port").get<std::string>());
  };
  std::sort(list.begin(), list.end(), [&](const Json& a, const Json& b) { return place(a) < place(b); });
  return list;
}

Json environment(const ProgramVersion& program, const Reasons& not_measured, const EnvironmentSources& sources) {
  const DeviceFacts cpu = device_facts(c10::Device(c10::kCPU));
  const NvmlLibrary nvml(sources.nvml_library);
  const auto driver = GpuProbe::driver_version(sources.nvml_library);
  const GpuEvidence evidence = gpu_evidence(sources.visible_devices, sources.nvml_library);
  Json json;
  json["schema_version"] = 1;
  json["trainopt"] = program.number;
  json["commit"] = program.commit;
  json["libtorch"] = libtorch_version();
  json["cuda"] = cuda_version();
  json["cudnn"] = cudnn_version();
  json["nccl"] = nccl_version();
  json["cpu"] = {{"model", cpu.name},
                 {"cores_allowed", cpu.multiprocessors},
                 {"cores_online", sysconf(_SC_NPROCESSORS_ONLN)},
                 {"instructions", at::get_cpu_capability()},
                 {"threads", at::get_num_threads()}};
  json["memory_mib"] = cpu.memory_bytes >> 20;
  json["driver"] = driver ? Json(*driver) : Json(nullptr);
  json["driver_cuda"] = evidence.cuda.driver_cuda == 0 ? Json() : Json(cuda_version_text(evidence.cuda.driver_cuda));
  json["gpu_trouble"] = trouble(evidence);
  json["gpus"] = gpus(nvml, evidence, sources.sys);
  json["other_gpus"] = other_gpus(json["gpus"], nvml, evidence, sources.sys);
  json["infiniband"] = infiniband_ports(sources.sys);
  json["kernel"] = kernel();
  json["distribution"] = distribution();
  json["not_measured"] = Json::object();
  for (const auto& [metric, reason] : not_measured) json["not_measured"][metric] = reason;
  return json;
}

}  // namespace trainopt
