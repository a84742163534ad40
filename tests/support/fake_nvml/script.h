// What the fake NVML plays: lines `name value` of the file that FAKE_NVML_SCRIPT names, read again at every call, so
// that a test can change the machine under a running program. Every call is noted in a file beside it,
// `<script>.calls`.
//
//   driver 580.82.07                         gpu0.bus 00000000:41:00.0        (up to gpu7, in NVML's own order)
//   slow_ms 300          each call           gpu0.error 15                    every call on this GPU
//   nvmlInit_v2.error 9  this function       gpu0.utilization 97   gpu0.used_mib 2048   gpu0.reserved_mib 512
//   gpu0.power_mw 412500
//                                            gpu0.sm_mhz 1830   gpu0.clock_reasons 0x24   gpu0.gpm 1   gpu0.sm_util 61
//                                            gpu0.tensor_util 33
#pragma once

#include <nvml.h>

#include <string>

namespace fake_nvml {

std::string text(const std::string& name, const std::string& otherwise = "");
/// A number, also as 0x24.
double number(const std::string& name, double otherwise = 0);
/// Notes the call, is as slow as the script says, and returns the error that it asks for.
nvmlReturn_t call(const char* function);
nvmlReturn_t call(const char* function, nvmlDevice_t device);
/// "gpu1.power_mw".
std::string key(nvmlDevice_t device, const char* fact);

}  // namespace fake_nvml
