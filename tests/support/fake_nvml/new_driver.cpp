// The functions that later drivers added: memory with its reserved part apart, clock reasons under their new name, GPM,
// MIG, processes, the speed and the far end of NVLinks.
#include "script.h"

using namespace fake_nvml;

struct nvmlGpmSample_st {
  nvmlDevice_t of = nullptr;
  long number = 0;
};

namespace {
long samples_taken = 0;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  const auto result = call("nvmlDeviceGetMemoryInfo_v2", device);
  if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  memory->used = static_cast<unsigned long long>(number(key(device, "used_mib"))) << 20;
  memory->reserved = static_cast<unsigned long long>(number(key(device, "reserved_mib"))) << 20;
  return result;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
  const auto result = call("nvmlDeviceGetCurrentClocksEventReasons", device);
  *reasons = static_cast<unsigned long long>(number(key(device, "clock_reasons")));
  return result;
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t* support) {
  const auto result = call("nvmlGpmQueryDeviceSupport", device);
  if (support->version != NVML_GPM_SUPPORT_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  support->isSupportedDevice = number(key(device, "gpm")) != 0;
  return result;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t* sample) {
  if (const auto error = call("nvmlGpmSampleAlloc")) return error;
  *sample = new nvmlGpmSample_st;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
  delete sample;
  return call("nvmlGpmSampleFree");
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
  *sample = {device, ++samples_taken};
  return call("nvmlGpmSampleGet", device);
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t* request) {
  if (const auto error = call("nvmlGpmMetricsGet", request->sample2->of)) return error;
  if (request->version != NVML_GPM_METRICS_GET_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  // Each interval starts where the previous one ended.
  if (request->sample1->of != request->sample2->of || request->sample1->number + 1 != request->sample2->number)
    return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; i < request->numMetrics; ++i) {
    const bool sm = request->metrics[i].metricId == NVML_GPM_METRIC_SM_UTIL;
    request->metrics[i].nvmlReturn = static_cast<nvmlReturn_t>(number(sm ? "sm_util.error" : "tensor_util.error"));
    request->metrics[i].value = number(key(request->sample2->of, sm ? "sm_util" : "tensor_util"));
  }
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* now, unsigned* pending) {
  const auto result = call("nvmlDeviceGetMigMode", device);
  if (text(key(device, "mig")).empty()) return NVML_ERROR_NOT_SUPPORTED;
  *now = *pending = static_cast<unsigned>(number(key(device, "mig")));
  return result;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned* count) {
  *count = 7;
  return call("nvmlDeviceGetMaxMigDeviceCount", device);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t* instance) {
  if (const auto error = call("nvmlDeviceGetMigDeviceHandleByIndex", device)) return error;
  *instance = device;
  return index < number(key(device, "mig_instances")) ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* found) {
  const auto process = static_cast<unsigned>(number(key(device, "process")));
  *count = process ? 1 : 0;
  found[0].pid = process;
  return call("nvmlDeviceGetComputeRunningProcesses_v3", device);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned, nvmlIntNvLinkDeviceType_t* type) {
  *type = text(key(device, "nvlink_to")) == "switch" ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
  return call("nvmlDeviceGetNvLinkRemoteDeviceType", device);
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  for (int i = 0; i < count; ++i) {
    const bool known = values[i].fieldId == NVML_FI_DEV_NVLINK_GET_SPEED;
    values[i].nvmlReturn = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    values[i].value.uiVal = static_cast<unsigned>(number(key(device, "nvlink_mb_per_s")));
  }
  return call("nvmlDeviceGetFieldValues", device);
}
