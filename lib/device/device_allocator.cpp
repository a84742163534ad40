#include "device/device_allocator.h"

#include "base/error.h"
#include "device/process.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <new>

namespace trainopt {

void set_device_allocator(ProcessSettings& process, const std::string& settings) {
  for (const auto name : kDeviceAllocatorVariables) process.environment[std::string(name)] = settings;
}

void read_device_allocator_settings() {
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  // The words of the CUDA half (c10/cuda/CUDAAllocatorConfig.h), which otherwise registers them itself.
  Config::registerDeviceConfigParserHook(
      [](const std::string&) {},
      {"backend", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register", "release_lock_on_hipmalloc",
       "pinned_use_hip_host_register", "graph_capture_record_stream_reuse", "pinned_reserve_segment_size_mb",
       "pinned_num_register_threads", "per_process_memory_fraction"});
  device_allocator_settings();
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

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPage = size_t{64} << 10;

// Rounds up to huge pages if the block is large enough that little is wasted, otherwise to 64 KiB.
size_t rounded(size_t bytes) {
  const size_t unit = bytes >= 8 * kHugePage ? kHugePage : kPage;
  return (bytes + unit - 1) / unit * unit;
}
}  // namespace

c10::DataPtr CachingAllocator::allocate(size_t bytes) {
  if (bytes < kMinCachedBytes) return CountingAllocator::allocate(bytes);
  const size_t size = rounded(bytes + sizeof(Header));
  Header* header = take_cached(size);
  if (!header) header = map_new(size);
  header->requested = bytes;
  return hand_out(header);
}

CountingAllocator::Header* CachingAllocator::take_cached(size_t bytes) {
  const std::lock_guard lock(mutex_);
  ++stats_.requests;
  const auto found = cached_.lower_bound(bytes);
  // Using a block up to a quarter too large costs less than faulting in a new one; larger ones are left for requests of
  // their own size.
  if (found == cached_.end() || found->first > bytes + bytes / 4) return nullptr;
  Header* header = found->second;
  cached_.erase(found);
  ++stats_.cache_hits;
  return header;
}

CountingAllocator::Header* CachingAllocator::map_new(size_t bytes) {
  // One extra huge page, so that the block can start at a multiple of it; otherwise the kernel could use none at the
  // ends.
  const size_t extra = huge_pages_ && bytes >= kHugePage ? kHugePage : 0;
  void* mapped = ::mmap(nullptr, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto address = reinterpret_cast<uintptr_t>(mapped);
  if (extra > 0) {
    address = (address + kHugePage - 1) / kHugePage * kHugePage;
    ::madvise(reinterpret_cast<void*>(address), bytes,
              MADV_HUGEPAGE);  // only advice: a failure on kernels without huge pages is ignored
  }
  const std::lock_guard lock(mutex_);
  stats_.mapped_bytes += static_cast<int64_t>(bytes);
  return new (reinterpret_cast<void*>(address)) Header{this, mapped, bytes, 0};
}

void CachingAllocator::take_back(Header* header) {
  const std::lock_guard lock(mutex_);
  cached_.emplace(header->bytes, header);
}

CachingAllocator::Stats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void install_caching_allocator(bool huge_pages) {
  if (installed_caching_allocator()) return;
  install_counting_allocator();  // starts the count
  // Never deleted: tensors may outlive everything else in the process.
  c10::SetCPUAllocator(new CachingAllocator(huge_pages), /*priority=*/255);
}

const CachingAllocator* installed_caching_allocator() {
  return dynamic_cast<const CachingAllocator*>(c10::GetCPUAllocator());
}

}  // namespace trainopt
