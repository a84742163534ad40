// Settings of the process, not of a trainer; the program applies them before anything else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

struct ProcessSettings {
  std::optional<int> num_threads;  ///< threads of CPU operations (OpenMP); null: libtorch's choice
  bool caching_allocator = false;  ///< allocate CPU tensors with a CachingAllocator (device_allocator.h)
  bool huge_pages = true;          ///< for the CachingAllocator's blocks
  bool deterministic = false;  ///< give cuBLAS a workspace that makes it reproducible; must be set before cuBLAS starts
  std::map<std::string, std::string> environment;  ///< environment variables that libraries read on start-up
  std::vector<int> cpus;                           ///< CPUs to bind all threads to; empty: leave them unbound

  bool operator==(const ProcessSettings&) const = default;
};
/// Call before the first operation, from the thread that will train. Keeps a CUBLAS_WORKSPACE_CONFIG that is already
/// set.
void apply(const ProcessSettings& settings);

/// Throws UserError(recipe) if `environment`, that of this process, already gives one of settings.environment's
/// variables another value: neither the user's word nor the recipe's is dropped silently.
void require_no_contradiction(const ProcessSettings& settings, const std::map<std::string, std::string>& environment);

/// libtorch writes its warnings, with stack frames, to standard error. After this call it only writes fatal errors.
void silence_library_warnings();

/// The CPUs in this thread's affinity mask, in ascending order; empty if the kernel does not report them.
std::vector<int> allowed_cpus();
/// Undoes a launcher's binding: this process, and those that it starts, may use every CPU that the machine gives them.
void allow_all_cpus();
/// Parses a CPU list in the kernel's format, "0-3,8,10-11"; empty if `text` has another format.
std::vector<int> cpus_of_list(std::string_view text);
/// The kernel's folder for the device at a PCI address in NVML's format (DeviceFacts::pci_bus_id).
std::filesystem::path pci_folder(std::string_view pci_bus_id, const std::filesystem::path& sys = "/sys");
/// The CPUs local to the GPU (DeviceFacts::pci_bus_id) according to the kernel; empty if it does not know them.
std::vector<int> cpus_local_to(std::string_view pci_bus_id, const std::filesystem::path& sys = "/sys");
/// Gives this thread the lowest CPU priority (nice 19), for background work.
void lower_thread_priority();
/// Number of cores this process may use: its affinity mask or, if smaller, the CPU quota of its cgroups (version 2)
/// rounded up; at least 1.
int allowed_cores();
/// Converts the line in a cgroup's cpu.max, "200000 100000", to cores, rounded up; nullopt if it is "max" or cannot be
/// parsed.
std::optional<int> cores_of_quota(std::string_view cpu_max);
/// Where the kernel shows cgroups; other places for tests.
struct CgroupPlaces {
  std::filesystem::path groups = "/proc/self/cgroup", hierarchies = "/sys/fs/cgroup";
};
/// Memory that this process may use: the machine's or, if smaller, the limit of its cgroups (version 1 or 2).
int64_t allowed_memory_bytes(const CgroupPlaces& places = {});
/// Converts the line in a cgroup's memory.max or memory.limit_in_bytes to bytes; nullopt if it is "max" or cannot be
/// parsed.
std::optional<int64_t> bytes_of_limit(std::string_view memory_max);

/// The version in libtorch's own description of itself (at::show_config()), "2.11.0"; empty if it has none.
std::string libtorch_version_in(std::string_view config);
/// Throws UserError if the libtorch that was loaded, `found`, is another release than the one that this program was
/// built with: its binary interface differs. 2.11.0 and 2.11.1 are one release.
void require_libtorch(const std::string& found);
/// The version of the libtorch that was loaded.
std::string libtorch_version();

/// Throws UserError, naming the missing features, on a CPU older than the code is compiled for (Intel Haswell 2013, AMD
/// Excavator 2015).
void require_x86_64_v3();

}  // namespace trainopt
