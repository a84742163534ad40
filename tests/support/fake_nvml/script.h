// The script of the fake NVML: lines `name value` in the file that FAKE_NVML_SCRIPT names. It is read again at every
// call, so that a test can change the machine under a running program. Every call is logged in `<script>.calls`.
//
//   driver 580.82.07
//   slow_ms 300                    delay of each call
//   nvmlInit_v2.error 9            error of this function
//   gpu0.error 15                  error of every call on this GPU
//   gpu0.bus 00000000:41:00.0      up to gpu7, in NVML's own order
//   gpu0.utilization 97            also used_mib 2048, reserved_mib 512, power_mw 412500, sm_mhz 1830,
//                                  clock_reasons 0x24, gpm 1, sm_util 61, tensor_util 33
//   gpu0.energy_mj 1234567         without a line: not supported
//   gpu0.name NVIDIA-H100          also uuid GPU-1, compute_mode 3, process 4242, mig 1, mig_instances 2, ecc 1,
//                                  pcie_generation 1, max_pcie_generation 5, pcie_width 8, max_pcie_width 16,
//                                  persistence_mode 1, power_limit_mw 700000, ancestor 30; without a line: not
//                                  supported
//   gpu0.nvlinks 18                also nvlink_version 6, nvlink_mb_per_s 26562, nvlink_to switch (or a bus)
#pragma once

#include <nvml.h>

#include <string>

namespace fake_nvml {

std::string text(const std::string& name, const std::string& otherwise = "");
/// A number, decimal or as 0x24.
double number(const std::string& name, double otherwise = 0);
/// Logs the call, takes as long as the script says, and returns the error that the script asks for.
nvmlReturn_t call(const char* function);
nvmlReturn_t call(const char* function, nvmlDevice_t device);
/// "gpu1.power_mw".
std::string key(nvmlDevice_t device, const char* fact);

}  // namespace fake_nvml
