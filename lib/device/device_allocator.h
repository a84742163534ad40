// Settings of libtorch's allocator for a GPU's memory, in libtorch's syntax: "expandable_segments:True,…".
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

struct ProcessSettings;

/// The environment variables with the settings. libtorch 2.11 reads one of them, when it first needs a setting: the
/// first that is set, in this order. Later changes of the environment have no effect.
inline constexpr std::array<std::string_view, 2> kDeviceAllocatorVariables{"PYTORCH_CUDA_ALLOC_CONF",
                                                                           "PYTORCH_ALLOC_CONF"};

/// Gives this process these settings, once it applies `process`. Sets both variables, so that neither of the user's is
/// dropped silently (require_no_contradiction()), nor read instead.
void set_device_allocator(ProcessSettings& process, const std::string& settings);

/// The settings that this process's libtorch read; empty if there were none. Reads them if that has not happened.
std::string device_allocator_settings();

/// The variables that `environment` sets and `process` does not, as "NAME=value".
std::vector<std::string> allocator_variables_only_in(const std::map<std::string, std::string>& environment,
                                                     const ProcessSettings& process);

/// For jobs that are compared. Throws UserError(recipe) if `process` sets a variable that `environment` already has,
/// even with the same value: the jobs that leave the allocator as it is would have its settings too.
void require_settings_of_this_job_only(const ProcessSettings& process,
                                       const std::map<std::string, std::string>& environment);

}  // namespace trainopt
