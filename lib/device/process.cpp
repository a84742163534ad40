#include "device/process.h"

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "device/device_allocator.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/util/Logging.h>
#include <torch/version.h>

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

namespace trainopt {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Binds all existing threads, and those created later, to `cpus`. A thread that ends meanwhile is ignored.
void bind_threads(const std::vector<int>& cpus) {
  const int cpu_count = *std::max_element(cpus.begin(), cpus.end()) + 1;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpu_count),
                                                             [](cpu_set_t* mask) { CPU_FREE(mask); });
  const size_t bytes = CPU_ALLOC_SIZE(cpu_count);
  CPU_ZERO_S(bytes, set.get());
  for (const int cpu : cpus) CPU_SET_S(cpu, bytes, set.get());
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
    ::sched_setaffinity(std::stoi(thread.path().filename()), bytes, set.get());
}

}  // namespace

void apply(const ProcessSettings& settings) {
  if (settings.num_threads) at::set_num_threads(*settings.num_threads);
  install_counting_allocator();
  if (settings.caching_allocator) install_caching_allocator(settings.huge_pages);
  if (settings.deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  for (const auto& [name, value] : settings.environment) ::setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  if (!settings.cpus.empty()) bind_threads(settings.cpus);
}

void require_no_contradiction(const ProcessSettings& settings, const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : settings.environment)
    if (const auto set = environment.find(name); set != environment.end() && set->second != value)
      throw UserError(
          fmt::format("the environment contradicts what this run needs; unset the variable, or remove the recipe key "
                      "behind it if there is one: {}={}, the run sets {}",
                      name, set->second, value));
}

void silence_library_warnings() { FLAGS_caffe2_log_level = 3; }

std::optional<int> cores_of_quota(std::string_view cpu_max) {
  int64_t quota = 0, period = 0;
  const char* end = cpu_max.data() + cpu_max.size();
  const auto first = std::from_chars(cpu_max.data(), end, quota);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, period);
  if (second.ec != std::errc() || quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<int>(std::min<int64_t>((quota + period - 1) / period, 1 << 20));
}

void lower_thread_priority() { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19); }  // per thread on Linux

std::vector<int> allowed_cpus() {
  // A fixed cpu_set_t holds 1024 CPUs, and the kernel rejects a mask smaller than its own.
  for (int cpu_count = 1024; cpu_count <= 1 << 20; cpu_count *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpu_count),
                                                               [](cpu_set_t* mask) { CPU_FREE(mask); });
    const size_t bytes = CPU_ALLOC_SIZE(cpu_count);
    if (sched_getaffinity(0, bytes, set.get()) != 0) continue;
    std::vector<int> cpus;
    for (int cpu = 0; cpu < cpu_count; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, set.get())) cpus.push_back(cpu);
    return cpus;
  }
  return {};
}

void allow_all_cpus() {
  constexpr int kCpus = 1 << 13;  // as many as a kernel can have; it leaves out those that the machine's cgroup forbids
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(kCpus), [](cpu_set_t* mask) { CPU_FREE(mask); });
  const size_t bytes = CPU_ALLOC_SIZE(kCpus);
  CPU_ZERO_S(bytes, set.get());
  for (int cpu = 0; cpu < kCpus; ++cpu) CPU_SET_S(cpu, bytes, set.get());
  if (sched_setaffinity(0, bytes, set.get()) != 0)
    log_warning("this process stays on {}, as its launcher bound it", counted(std::ssize(allowed_cpus()), "CPU"));
}

std::vector<int> cpus_of_list(std::string_view text) {
  std::vector<int> cpus;
  const char *at = text.data(), *end = at + text.size();
  while (at != end) {
    int first = 0;
    auto read = std::from_chars(at, end, first);
    int last = first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || first < 0 || last < first || last >= 1 << 20) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    at = read.ptr;
    if (at != end && *at++ != ',') return {};
  }
  return cpus;
}

std::filesystem::path pci_folder(std::string_view pci_bus_id, const std::filesystem::path& sys) {
  // NVML writes the domain with eight digits and letters in upper case, the kernel with four and in lower case.
  constexpr size_t kKernelDigits = 12;
  std::string id(pci_bus_id.substr(pci_bus_id.size() > kKernelDigits ? pci_bus_id.size() - kKernelDigits : 0));
  std::transform(id.begin(), id.end(), id.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return sys / "bus/pci/devices" / id;
}

std::vector<int> cpus_local_to(std::string_view pci_bus_id, const std::filesystem::path& sys) {
  if (pci_bus_id.empty()) return {};
  return cpus_of_list(first_line(pci_folder(pci_bus_id, sys) / "local_cpulist"));
}

std::string libtorch_version_in(std::string_view config) {
  constexpr std::string_view kName = "TORCH_VERSION=";
  const size_t at = config.find(kName);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = config.substr(at + kName.size());
  return std::string(rest.substr(0, rest.find_first_not_of("0123456789.")));
}

std::string libtorch_version() { return libtorch_version_in(at::show_config()); }

void require_libtorch(const std::string& found) {
  const auto release = [](const std::string& version) { return version.substr(0, version.rfind('.')); };
  if (found.empty() || release(found) == release(libtorch_version_in("TORCH_VERSION=" TORCH_VERSION))) return;
  throw UserError(fmt::format(
      "the libtorch found is another release than the one this program was built with; install that one, or build the "
      "program again: found {}, built with {}",
      found, TORCH_VERSION));
}

namespace {

/// The first line of `file` in each cgroup that this process is in. `groups` has a line "0::/user.slice/job" for
/// version 2, whose controllers are "", and one such as "4:memory:/user.slice/job" for each hierarchy of version 1. The
/// limits of all groups up to the root apply.
std::vector<std::string> cgroup_limits(const CgroupPlaces& places, std::string_view controllers, const char* file) {
  std::vector<std::string> limits;
  std::ifstream groups(places.groups);
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line.substr(first + 1, second - first - 1) != controllers) continue;
    const std::string hierarchy = (places.hierarchies / controllers).string();
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      limits.push_back(first_line(hierarchy + path + "/" + file));
      if (path.empty()) break;
    }
  }
  return limits;
}

}  // namespace

int allowed_cores() {
  int cores = std::max(static_cast<int>(allowed_cpus().size()), 1);
  for (const std::string& limit : cgroup_limits({}, "", "cpu.max"))
    if (const auto quota = cores_of_quota(limit)) cores = std::min(cores, *quota);
  return std::max(cores, 1);
}

std::optional<int64_t> bytes_of_limit(std::string_view memory_max) {
  int64_t bytes = 0;
  const auto [end, error] = std::from_chars(memory_max.data(), memory_max.data() + memory_max.size(), bytes);
  if (error != std::errc() || end != memory_max.data() + memory_max.size()) return std::nullopt;
  return bytes;
}

int64_t allowed_memory_bytes(const CgroupPlaces& places) {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  std::vector<std::string> limits = cgroup_limits(places, "", "memory.max");
  std::ranges::copy(cgroup_limits(places, "memory", "memory.limit_in_bytes"), std::back_inserter(limits));
  for (const std::string& text : limits)
    if (const auto limit = bytes_of_limit(text)) bytes = std::min(bytes, *limit);
  return bytes;
}

}  // namespace trainopt
