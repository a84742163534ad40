#include "device/device_allocator.h"

#include "base/error.h"
#include "device/process.h"

#include <c10/core/AllocatorConfig.h>

namespace trainopt {

void set_device_allocator(ProcessSettings& process, const std::string& settings) {
  for (const auto name : kDeviceAllocatorVariables) process.environment[std::string(name)] = settings;
}

std::string device_allocator_settings() { return c10::CachingAllocator::getAllocatorSettings(); }

std::vector<std::string> allocator_variables_only_in(const std::map<std::string, std::string>& environment,
                                                     const ProcessSettings& process) {
  std::vector<std::string> all;
  for (const auto name : kDeviceAllocatorVariables)
    if (const auto set = environment.find(std::string(name));
        set != environment.end() && !process.environment.contains(set->first))
      all.push_back(set->first + "=" + set->second);
  return all;
}

void require_settings_of_this_job_only(const ProcessSettings& process,
                                       const std::map<std::string, std::string>& environment) {
  for (const auto name : kDeviceAllocatorVariables)
    if (const auto set = environment.find(std::string(name));
        set != environment.end() && process.environment.contains(set->first))
      throw UserError(
          fmt::format("a job that is compared sets libtorch's GPU allocator in its recipe, so the environment must not "
                      "set it for the others; unset the variable: {}={}",
                      set->first, set->second));
}

}  // namespace trainopt
