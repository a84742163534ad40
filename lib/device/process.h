// What belongs to the process and not to a trainer; the program applies it before anything else.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

struct ProcessSettings {
  std::optional<int> num_threads;  ///< of CPU operations (OpenMP); null: libtorch's choice
  bool caching_allocator = false;  ///< CPU tensors from a CachingAllocator (caching_allocator.h)
  bool huge_pages = true;          ///< for its blocks
  bool deterministic = false;      ///< cuBLAS gets a workspace with which it repeats (its start is the last moment)
  std::map<std::string, std::string> environment;  ///< variables that libraries read when they start
  std::vector<int> cpus;                           ///< that all its threads keep to; empty: those they may use

  bool operator==(const ProcessSettings&) const = default;
};
/// Before the first operation, from the thread that will train. A CUBLAS_WORKSPACE_CONFIG that is already set stays.
void apply(const ProcessSettings& settings);

/// libtorch writes its warnings, with stack frames, to standard error; from here on only what ends the process.
void silence_library_warnings();

/// The CPUs in this thread's affinity mask, by number; empty if the kernel does not say.
std::vector<int> allowed_cpus();
/// The numbers in the kernel's "0-3,8,10-11"; empty if it is something else.
std::vector<int> cpus_of_list(std::string_view text);
/// The CPUs on the same side of the machine as the GPU (DeviceFacts::pci_bus_id), as the kernel knows them; empty if it
/// does not.
std::vector<int> cpus_beside(std::string_view pci_bus_id, const std::filesystem::path& sys = "/sys");
/// This thread gets the processor only when nobody else wants it: for work that nobody waits for.
void yield_to_others();
/// Cores this process may keep busy: its affinity mask or, if smaller, the CPU quota of its cgroups (version 2),
/// rounded up; at least 1.
int allowed_cores();
/// The line of a cgroup's cpu.max, "200000 100000", as cores rounded up; nullopt if it says max or nothing readable.
std::optional<int> cores_of_quota(std::string_view cpu_max);

/// Throws UserError, naming what is missing, on a CPU older than the code is compiled for (Intel Haswell 2013, AMD
/// Excavator 2015).
void require_x86_64_v3();

}  // namespace trainopt
