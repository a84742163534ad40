#include "metrics/hardware/nvml.h"

#include "base/error.h"

#include <fmt/format.h>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace trainopt {
namespace {

template <class Function>
void load(void* library, Function& function, const char* name, const char* older_name = nullptr) {
  void* symbol = dlsym(library, name);
  if (!symbol && older_name) symbol = dlsym(library, older_name);
  function = reinterpret_cast<Function>(symbol);
}

NvmlFunctions load_functions(void* library) {
  NvmlFunctions f;
  load(library, f.init, "nvmlInit_v2");
  load(library, f.shutdown, "nvmlShutdown");
  load(library, f.error_string, "nvmlErrorString");
  load(library, f.driver_version, "nvmlSystemGetDriverVersion");
  load(library, f.handle_by_pci, "nvmlDeviceGetHandleByPciBusId_v2");
  load(library, f.count, "nvmlDeviceGetCount_v2");
  load(library, f.handle_by_index, "nvmlDeviceGetHandleByIndex_v2");
  load(library, f.name, "nvmlDeviceGetName");
  load(library, f.uuid, "nvmlDeviceGetUUID");
  load(library, f.pci_info, "nvmlDeviceGetPciInfo_v3");
  load(library, f.compute_mode, "nvmlDeviceGetComputeMode");
  load(library, f.processes, "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2");
  load(library, f.mig_mode, "nvmlDeviceGetMigMode");
  load(library, f.max_mig_devices, "nvmlDeviceGetMaxMigDeviceCount");
  load(library, f.mig_device, "nvmlDeviceGetMigDeviceHandleByIndex");
  load(library, f.pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration");
  load(library, f.max_pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
  load(library, f.pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
  load(library, f.max_pcie_width, "nvmlDeviceGetMaxPcieLinkWidth");
  load(library, f.nvlink_state, "nvmlDeviceGetNvLinkState");
  load(library, f.nvlink_version, "nvmlDeviceGetNvLinkVersion");
  load(library, f.nvlink_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  load(library, f.nvlink_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
  load(library, f.field_values, "nvmlDeviceGetFieldValues");
  load(library, f.common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
  load(library, f.ecc, "nvmlDeviceGetEccMode");
  load(library, f.persistence_mode, "nvmlDeviceGetPersistenceMode");
  load(library, f.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  load(library, f.utilization, "nvmlDeviceGetUtilizationRates");
  load(library, f.total_energy, "nvmlDeviceGetTotalEnergyConsumption");
  load(library, f.memory_v2, "nvmlDeviceGetMemoryInfo_v2");
  load(library, f.memory_v1, "nvmlDeviceGetMemoryInfo");
  load(library, f.power, "nvmlDeviceGetPowerUsage");
  load(library, f.clock, "nvmlDeviceGetClockInfo");
  load(library, f.clocks_event_reasons, "nvmlDeviceGetCurrentClocksEventReasons",
       "nvmlDeviceGetCurrentClocksThrottleReasons");
  load(library, f.gpm_support, "nvmlGpmQueryDeviceSupport");
  load(library, f.gpm_alloc, "nvmlGpmSampleAlloc");
  load(library, f.gpm_free, "nvmlGpmSampleFree");
  load(library, f.gpm_get, "nvmlGpmSampleGet");
  load(library, f.gpm_metrics, "nvmlGpmMetricsGet");
  return f;
}

}  // namespace

NvmlLibrary::NvmlLibrary(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    error = fmt::format("{} cannot be loaded: no NVIDIA driver", name);
    return;
  }
  functions = load_functions(library);
  if (!functions.init || !functions.handle_by_pci || !functions.shutdown) {
    error = fmt::format("{} lacks required functions: the driver is too old", name);
    return;
  }
  const nvmlReturn_t result = functions.init();
  open = result == NVML_SUCCESS;
  if (!open) error = "NVML cannot be initialised: " + text(result);
}

NvmlLibrary::~NvmlLibrary() {
  if (open) functions.shutdown();
}

std::string NvmlLibrary::text(nvmlReturn_t result) const {
  const char* words = functions.error_string ? functions.error_string(result) : nullptr;
  return words ? std::string(words) : fmt::format("NVML error {}", static_cast<int>(result));
}

namespace {

/// A function that this driver lacks fails like one that it has.
template <class Function, class... Arguments>
nvmlReturn_t ask_nvml(Function function, Arguments... arguments) {
  return function ? function(arguments...) : NVML_ERROR_FUNCTION_NOT_FOUND;
}

template <size_t kSize, class Function>
std::string nvml_text(Function function, nvmlDevice_t device) {
  std::array<char, kSize> text{};
  return ask_nvml(function, device, text.data(), static_cast<unsigned>(kSize)) == NVML_SUCCESS ? text.data() : "";
}

int count_mig_instances(const NvmlFunctions& f, nvmlDevice_t device) {
  unsigned slots = 0;
  int count = 0;
  if (ask_nvml(f.max_mig_devices, device, &slots) != NVML_SUCCESS) return 0;
  for (unsigned slot = 0; slot < slots; ++slot) {
    nvmlDevice_t instance{};
    count += ask_nvml(f.mig_device, device, slot, &instance) == NVML_SUCCESS;
  }
  return count;
}

std::vector<unsigned> processes_on(const NvmlFunctions& f, nvmlDevice_t device) {
  std::array<nvmlProcessInfo_t, 64> found{};
  auto count = static_cast<unsigned>(found.size());
  if (ask_nvml(f.processes, device, &count, found.data()) != NVML_SUCCESS) return {};
  std::vector<unsigned> ids;
  for (unsigned i = 0; i < count; ++i) ids.push_back(found[i].pid);
  return ids;
}

SeenGpu seen_gpu(const NvmlLibrary& nvml, unsigned index) {
  const NvmlFunctions& f = nvml.functions;
  SeenGpu gpu;
  gpu.index = static_cast<int>(index);
  const auto note_loss = [&](nvmlReturn_t result) {
    if (result == NVML_ERROR_GPU_IS_LOST || result == NVML_ERROR_RESET_REQUIRED) gpu.lost = nvml.text(result);
    return result == NVML_SUCCESS;
  };
  nvmlDevice_t device{};
  if (!note_loss(ask_nvml(f.handle_by_index, index, &device))) return gpu;
  gpu.name = nvml_text<NVML_DEVICE_NAME_V2_BUFFER_SIZE>(f.name, device);
  gpu.uuid = nvml_text<NVML_DEVICE_UUID_V2_BUFFER_SIZE>(f.uuid, device);
  if (nvmlPciInfo_t pci{}; note_loss(ask_nvml(f.pci_info, device, &pci))) gpu.pci_bus_id = pci.busId;
  unsigned now = 0, pending = 0;
  if (note_loss(ask_nvml(f.mig_mode, device, &now, &pending))) gpu.mig = now == NVML_DEVICE_MIG_ENABLE;
  if (gpu.mig.value_or(false)) gpu.mig_instances = count_mig_instances(f, device);
  if (nvmlComputeMode_t mode{}; note_loss(ask_nvml(f.compute_mode, device, &mode))) {
    gpu.prohibited = mode == NVML_COMPUTEMODE_PROHIBITED;
    gpu.exclusive = mode == NVML_COMPUTEMODE_EXCLUSIVE_PROCESS || mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD;
  }
  if (gpu.exclusive) gpu.processes = processes_on(f, device);
  return gpu;
}

const char* nvlink_version_text(unsigned version) {
  constexpr std::array kVersions{"", "1.0", "2.0", "2.2", "3.0", "3.1", "4.0", "5.0"};
  return version > 0 && version < kVersions.size() ? kVersions[version] : nullptr;
}

/// The active NVLinks of a GPU: to other GPUs, by PCI bus ID, and to switches, which connect it to all GPUs there.
struct NvLinks {
  std::map<std::string, int> to_gpu;
  int to_switch = 0, active = 0;
  std::optional<unsigned> first;      ///< the number of the first active link
  nvmlReturn_t error = NVML_SUCCESS;  ///< NVML's answer for the first link
};

NvLinks nvlinks_of(const NvmlFunctions& f, nvmlDevice_t device) {
  NvLinks links;
  for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) {
    nvmlEnableState_t state{};
    const nvmlReturn_t result = ask_nvml(f.nvlink_state, device, link, &state);
    if (link == 0) links.error = result;
    if (result != NVML_SUCCESS) break;  // a GPU has fewer links than the largest one
    if (state != NVML_FEATURE_ENABLED) continue;
    ++links.active;
    if (!links.first) links.first = link;
    nvmlIntNvLinkDeviceType_t type{};
    nvmlPciInfo_t remote{};
    if (ask_nvml(f.nvlink_remote_type, device, link, &type) == NVML_SUCCESS && type == NVML_NVLINK_DEVICE_TYPE_SWITCH)
      ++links.to_switch;
    else if (ask_nvml(f.nvlink_remote, device, link, &remote) == NVML_SUCCESS)
      ++links.to_gpu[remote.busId];
  }
  return links;
}

/// The words of nvidia-smi topo -m.
const char* path_text(nvmlGpuTopologyLevel_t level) {
  switch (level) {
    case NVML_TOPOLOGY_INTERNAL:
    case NVML_TOPOLOGY_SINGLE:
      return "PIX";
    case NVML_TOPOLOGY_MULTIPLE:
      return "PXB";
    case NVML_TOPOLOGY_HOSTBRIDGE:
      return "PHB";
    case NVML_TOPOLOGY_NODE:
      return "NODE";
    case NVML_TOPOLOGY_SYSTEM:
      return "SYS";
  }
  return nullptr;
}

/// Asks about one GPU and keeps the reasons for what is not known.
class Questions {
 public:
  Questions(const NvmlLibrary& nvml, nvmlDevice_t device) : nvml_(nvml), f_(nvml.functions), device_(device) {}

  Json pcie() {
    return {{"generation", number("pcie.generation", f_.pcie_generation)},
            {"max_generation", number("pcie.max_generation", f_.max_pcie_generation)},
            {"width", number("pcie.width", f_.pcie_width)},
            {"max_width", number("pcie.max_width", f_.max_pcie_width)}};
  }

  Json nvlink(const NvLinks& links) {
    if (links.error != NVML_SUCCESS) return absent("nvlink", links.error);
    Json json = {
        {"links", links.active}, {"version", nullptr}, {"link_gb_per_s", nullptr}, {"total_gb_per_s", nullptr}};
    json["to"] = Json::object();
    for (const auto& [bus_id, count] : links.to_gpu) json["to"][bus_id] = count;
    if (links.to_switch > 0) json["to"]["switch"] = links.to_switch;
    if (!links.first) return json;
    unsigned version = 0;
    const nvmlReturn_t result = ask_nvml(f_.nvlink_version, device_, *links.first, &version);
    if (const char* text = nvlink_version_text(version); text && result == NVML_SUCCESS)
      json["version"] = text;
    else
      absent("nvlink.version", result == NVML_SUCCESS ? NVML_ERROR_UNKNOWN : result);
    nvmlFieldValue_t speed{};
    speed.fieldId = NVML_FI_DEV_NVLINK_GET_SPEED;
    speed.scopeId = *links.first;
    nvmlReturn_t read = ask_nvml(f_.field_values, device_, 1, &speed);
    if (read == NVML_SUCCESS) read = speed.nvmlReturn;
    if (read != NVML_SUCCESS) {
      absent("nvlink.link_gb_per_s", read);
      return json;
    }
    const double link = speed.value.uiVal / 1e3;  // MB/s in each direction
    json["link_gb_per_s"] = link;
    json["total_gb_per_s"] = std::round(link * links.active * 1e3) / 1e3;
    return json;
  }

  Json enabled(const char* what, decltype(NvmlFunctions::persistence_mode) function) {
    nvmlEnableState_t state{};
    const nvmlReturn_t result = ask_nvml(function, device_, &state);
    return result == NVML_SUCCESS ? Json(state == NVML_FEATURE_ENABLED) : absent(what, result);
  }

  Json ecc() {
    nvmlEnableState_t now{}, pending{};
    const nvmlReturn_t result = ask_nvml(f_.ecc, device_, &now, &pending);
    return result == NVML_SUCCESS ? Json(now == NVML_FEATURE_ENABLED) : absent("ecc", result);
  }

  Json mig() {
    unsigned now = 0, pending = 0;
    const nvmlReturn_t result = ask_nvml(f_.mig_mode, device_, &now, &pending);
    return result == NVML_SUCCESS ? Json(now == NVML_DEVICE_MIG_ENABLE) : absent("mig", result);
  }

  Json power_limit_w() {
    unsigned milliwatts = 0;
    const nvmlReturn_t result = ask_nvml(f_.power_limit, device_, &milliwatts);
    return result == NVML_SUCCESS ? Json(milliwatts / 1e3) : absent("power_limit_w", result);
  }

  /// "NV4": four NVLinks; otherwise the common ancestor on the PCIe bus.
  Json path_to(const NvLinks& links, nvmlDevice_t other, const std::string& other_bus_id) {
    if (const auto direct = links.to_gpu.find(other_bus_id); direct != links.to_gpu.end())
      return fmt::format("NV{}", direct->second);
    if (links.to_switch > 0)
      if (const int through = std::min(links.to_switch, nvlinks_of(f_, other).to_switch); through > 0)
        return fmt::format("NV{}", through);
    nvmlGpuTopologyLevel_t level{};
    const nvmlReturn_t result = ask_nvml(f_.common_ancestor, device_, other, &level);
    if (result != NVML_SUCCESS) return absent("peers", result);
    const char* text = path_text(level);
    return text ? Json(text) : absent("peers", NVML_ERROR_UNKNOWN);
  }

  const Json& not_known() const { return not_known_; }

 private:
  Json number(const char* what, decltype(NvmlFunctions::pcie_width) function) {
    unsigned value = 0;
    const nvmlReturn_t result = ask_nvml(function, device_, &value);
    return result == NVML_SUCCESS ? Json(value) : absent(what, result);
  }

  Json absent(const char* what, nvmlReturn_t result) {
    not_known_[what] = result == NVML_ERROR_FUNCTION_NOT_FOUND ? "this driver's NVML has no function for it"
                                                               : "NVML: " + nvml_.text(result);
    return nullptr;
  }

  const NvmlLibrary& nvml_;
  const NvmlFunctions& f_;
  nvmlDevice_t device_;
  Json not_known_ = Json::object();
};

}  // namespace

std::vector<SeenGpu> seen_gpus(const NvmlLibrary& nvml) {
  std::vector<SeenGpu> all;
  unsigned count = 0;
  if (!nvml.open || ask_nvml(nvml.functions.count, &count) != NVML_SUCCESS) return all;
  for (unsigned index = 0; index < count; ++index) all.push_back(seen_gpu(nvml, index));
  return all;
}

Json gpu_hardware(const NvmlLibrary& nvml, const std::string& pci_bus_id, const std::vector<SeenGpu>& all) {
  const auto nothing = [](const std::string& reason) { return Json{{"not_known", {{"hardware", reason}}}}; };
  if (!nvml.open) return nothing(nvml.error);
  nvmlDevice_t device{};
  if (const auto result = nvml.functions.handle_by_pci(pci_bus_id.c_str(), &device); result != NVML_SUCCESS)
    return nothing(fmt::format("NVML cannot find this GPU: {}", nvml.text(result)));
  Questions questions(nvml, device);
  const NvLinks links = nvlinks_of(nvml.functions, device);
  Json json = {{"pcie", questions.pcie()}, {"nvlink", questions.nvlink(links)}};
  json["peers"] = Json::object();
  for (const SeenGpu& other : all) {
    nvmlDevice_t peer{};
    if (other.pci_bus_id.empty() || other.pci_bus_id == pci_bus_id) continue;
    if (nvml.functions.handle_by_pci(other.pci_bus_id.c_str(), &peer) == NVML_SUCCESS)
      json["peers"][other.pci_bus_id] = questions.path_to(links, peer, other.pci_bus_id);
  }
  json["mig"] = questions.mig();
  json["ecc"] = questions.ecc();
  json["persistence_mode"] = questions.enabled("persistence_mode", nvml.functions.persistence_mode);
  json["power_limit_w"] = questions.power_limit_w();
  json["not_known"] = questions.not_known();
  return json;
}

}  // namespace trainopt
