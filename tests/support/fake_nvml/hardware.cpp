// What describes a GPU, its links and its neighbours, in every driver.
#include "script.h"

#include <cstdint>
#include <cstdio>

using namespace fake_nvml;

namespace {

nvmlReturn_t answer(const char* function, nvmlDevice_t device, const char* fact, unsigned* value) {
  const auto result = call(function, device);
  if (text(key(device, fact)).empty()) return NVML_ERROR_NOT_SUPPORTED;
  *value = static_cast<unsigned>(number(key(device, fact)));
  return result;
}

nvmlReturn_t answer(const char* function, nvmlDevice_t device, const char* fact, nvmlEnableState_t* state) {
  unsigned value = 0;
  const auto result = answer(function, device, fact, &value);
  *state = value ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
  return result;
}

nvmlReturn_t answer(const char* function, nvmlDevice_t device, const char* fact, char* words, unsigned length) {
  const auto result = call(function, device);
  std::snprintf(words, length, "%s", text(key(device, fact)).c_str());
  return result;
}

bool has_link(nvmlDevice_t device, unsigned link) { return link < number(key(device, "nvlinks")); }

}  // namespace

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  const auto result = call("nvmlDeviceGetCount_v2");
  for (*count = 0; *count < 8; ++*count) {
    const auto device = reinterpret_cast<nvmlDevice_t>(std::uintptr_t{*count} + 1);
    if (text(key(device, "bus")).empty()) break;
  }
  return result;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  *device = reinterpret_cast<nvmlDevice_t>(std::uintptr_t{index} + 1);
  return call("nvmlDeviceGetHandleByIndex_v2", *device);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned length) {
  return answer("nvmlDeviceGetName", device, "name", name, length);
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
  return answer("nvmlDeviceGetUUID", device, "uuid", uuid, length);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return answer("nvmlDeviceGetPciInfo_v3", device, "bus", pci->busId, sizeof pci->busId);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  *mode = static_cast<nvmlComputeMode_t>(number(key(device, "compute_mode")));
  return call("nvmlDeviceGetComputeMode", device);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned* generation) {
  return answer("nvmlDeviceGetCurrPcieLinkGeneration", device, "pcie_generation", generation);
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned* generation) {
  return answer("nvmlDeviceGetMaxPcieLinkGeneration", device, "max_pcie_generation", generation);
}
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned* width) {
  return answer("nvmlDeviceGetCurrPcieLinkWidth", device, "pcie_width", width);
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned* width) {
  return answer("nvmlDeviceGetMaxPcieLinkWidth", device, "max_pcie_width", width);
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, nvmlEnableState_t* active) {
  const auto result = call("nvmlDeviceGetNvLinkState", device);
  if (text(key(device, "nvlinks")).empty()) return NVML_ERROR_NOT_SUPPORTED;
  if (!has_link(device, link)) return NVML_ERROR_INVALID_ARGUMENT;
  *active = NVML_FEATURE_ENABLED;
  return result;
}
nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned, unsigned* version) {
  return answer("nvmlDeviceGetNvLinkVersion", device, "nvlink_version", version);
}
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned, nvmlPciInfo_t* pci) {
  return answer("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, "nvlink_to", pci->busId, sizeof pci->busId);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t, nvmlGpuTopologyLevel_t* level) {
  *level = static_cast<nvmlGpuTopologyLevel_t>(number(key(device, "ancestor"), NVML_TOPOLOGY_SYSTEM));
  return call("nvmlDeviceGetTopologyCommonAncestor", device);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* now, nvmlEnableState_t* pending) {
  const auto result = answer("nvmlDeviceGetEccMode", device, "ecc", now);
  *pending = *now;
  return result;
}
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return answer("nvmlDeviceGetPersistenceMode", device, "persistence_mode", mode);
}
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned* milliwatts) {
  return answer("nvmlDeviceGetEnforcedPowerLimit", device, "power_limit_mw", milliwatts);
}
