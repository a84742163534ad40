// The functions of a driver before R510: no reserved memory, no GPM, clock reasons under their old name.
#include "script.h"

#include <strings.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

namespace fake_nvml {

int sessions = 0;

std::string script_path() {
  const char* path = std::getenv("FAKE_NVML_SCRIPT");
  return path ? path : "";
}

std::string text(const std::string& name, const std::string& otherwise) {
  std::ifstream script(script_path());
  for (std::string line; std::getline(script, line);) {
    std::istringstream words(line);
    std::string word, value;
    if (words >> word >> value && word == name) return value;
  }
  return otherwise;
}

double number(const std::string& name, double otherwise) {
  const std::string word = text(name);
  return word.empty() ? otherwise : std::strtod(word.c_str(), nullptr);
}

nvmlReturn_t call(const char* function) {
  std::ofstream(script_path() + ".calls", std::ios::app) << function << '\n';
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(number("slow_ms")));
  if (const auto error = static_cast<nvmlReturn_t>(number(std::string(function) + ".error"))) return error;
  return sessions > 0 || std::strcmp(function, "nvmlInit_v2") == 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t call(const char* function, nvmlDevice_t device) {
  if (const auto error = call(function)) return error;
  return static_cast<nvmlReturn_t>(number(key(device, "error")));
}

std::string key(nvmlDevice_t device, const char* fact) {
  return "gpu" + std::to_string(reinterpret_cast<std::uintptr_t>(device) - 1) + "." + fact;
}

}  // namespace fake_nvml

using namespace fake_nvml;

nvmlReturn_t nvmlInit_v2() {
  const auto result = call("nvmlInit_v2");
  if (result == NVML_SUCCESS) ++sessions;
  return result;
}

nvmlReturn_t nvmlShutdown() {
  const auto result = call("nvmlShutdown");
  if (result == NVML_SUCCESS) --sessions;
  return result;
}

const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
      return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "Driver Not Loaded";
    case NVML_ERROR_GPU_IS_LOST:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned length) {
  const auto result = call("nvmlSystemGetDriverVersion");
  if (result == NVML_SUCCESS) std::snprintf(version, length, "%s", text("driver", "470.256.02").c_str());
  return result;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus, nvmlDevice_t* device) {
  if (const auto error = call("nvmlDeviceGetHandleByPciBusId_v2")) return error;
  for (std::uintptr_t handle = 1; handle <= 8; ++handle) {
    *device = reinterpret_cast<nvmlDevice_t>(handle);
    if (strcasecmp(text(key(*device, "bus")).c_str(), bus) == 0) return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* rates) {
  const auto result = call("nvmlDeviceGetUtilizationRates", device);
  *rates = {.gpu = static_cast<unsigned>(number(key(device, "utilization"))), .memory = 0};
  return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  const auto result = call("nvmlDeviceGetMemoryInfo", device);
  memory->used = static_cast<unsigned long long>(number(key(device, "used_mib")) + number(key(device, "reserved_mib")))
                 << 20;
  return result;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* milliwatts) {
  const auto result = call("nvmlDeviceGetPowerUsage", device);
  *milliwatts = static_cast<unsigned>(number(key(device, "power_mw")));
  return result;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* millijoules) {
  const auto result = call("nvmlDeviceGetTotalEnergyConsumption", device);
  if (text(key(device, "energy_mj")).empty()) return NVML_ERROR_NOT_SUPPORTED;
  *millijoules = static_cast<unsigned long long>(number(key(device, "energy_mj")));
  return result;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned* megahertz) {
  const auto result = call("nvmlDeviceGetClockInfo", device);
  *megahertz = type == NVML_CLOCK_SM ? static_cast<unsigned>(number(key(device, "sm_mhz"))) : 1;
  return result;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
  const auto result = call("nvmlDeviceGetCurrentClocksThrottleReasons", device);
  *reasons = static_cast<unsigned long long>(number(key(device, "clock_reasons")));
  return result;
}
