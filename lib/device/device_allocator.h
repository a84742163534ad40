// The allocators of tensors' memory: the settings of libtorch's for GPUs, and one of our own for CPUs.
#pragma once

#include "device/tensor_memory.h"

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

struct ProcessSettings;

// A GPU: settings in libtorch's syntax, "expandable_segments:True,…".

/// The environment variables with the settings. libtorch 2.11 reads one of them, when it first needs a setting: the
/// first that is set, in this order. Later changes of the environment have no effect.
inline constexpr std::array<std::string_view, 2> kDeviceAllocatorVariables{"PYTORCH_CUDA_ALLOC_CONF",
                                                                           "PYTORCH_ALLOC_CONF"};

/// Gives this process these settings, once it applies `process`. Sets both variables, so that neither of the user's is
/// dropped silently (require_no_contradiction()), nor read instead.
void set_device_allocator(ProcessSettings& process, const std::string& settings);

/// The settings that this process's libtorch read; empty if there were none. Reads them if that has not happened.
std::string device_allocator_settings();

/// For a process without libtorch's CUDA half, which would read the settings as it is loaded: reads them as libtorch
/// does, so that a wrong variable is found on any machine. Throws std::exception, as libtorch does, if they are wrong.
void read_device_allocator_settings();

/// The variables that `environment` sets and `process` does not, as "NAME=value".
std::vector<std::string> allocator_variables_only_in(const std::map<std::string, std::string>& environment,
                                                     const ProcessSettings& process);

/// For jobs that are compared. Throws UserError(recipe) if `process` sets a variable that `environment` already has,
/// even with the same value: the jobs that leave the allocator as it is would have its settings too.
void require_settings_of_this_job_only(const ProcessSettings& process,
                                       const std::map<std::string, std::string>& environment);

// The CPU: an allocator that reuses memory. glibc's malloc returns every block above 32 MiB, and free memory
// at the end of the heap, to the kernel. A training step then touches tens of thousands of new pages, each of which
// costs a fault and zeroing 4 KiB.

/// Freed large blocks are cached and reused for requests of nearly their size; small blocks are left to malloc. Memory
/// use grows to slightly more than the largest amount ever needed at once. Counts tensors as its base class does.
/// Thread-safe.
class CachingAllocator : public CountingAllocator {
 public:
  /// Blocks of at least this size are cached.
  static constexpr size_t kMinCachedBytes = size_t{256} << 10;

  /// Must outlive every tensor allocated from it. `huge_pages`: ask the kernel for 2 MiB pages.
  explicit CachingAllocator(bool huge_pages) : huge_pages_(huge_pages) {}

  c10::DataPtr allocate(size_t bytes) override;

  struct Stats {
    int64_t mapped_bytes = 0;  ///< obtained from the kernel, in use or cached
    int64_t requests = 0;      ///< requests for large blocks
    int64_t cache_hits = 0;    ///< those served from the cache
  };
  Stats stats() const;

 private:
  void take_back(Header* header) override;
  Header* take_cached(size_t bytes);
  Header* map_new(size_t bytes);

  bool huge_pages_;
  mutable std::mutex mutex_;
  std::multimap<size_t, Header*> cached_;  // by size
  Stats stats_;
};

/// Makes all CPU tensors created from now on in this process use a CachingAllocator. A second call does nothing.
void install_caching_allocator(bool huge_pages);
/// The installed allocator, or nullptr.
const CachingAllocator* installed_caching_allocator();

}  // namespace trainopt
