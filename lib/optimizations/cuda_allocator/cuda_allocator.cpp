#include "optimizations/cuda_allocator/cuda_allocator.h"

#include "base/units.h"
#include "device/device_allocator.h"
#include "optimizations/info.h"
#include "train/plan.h"

#include <bit>

namespace trainopt::cuda_allocator {
namespace {

/// libtorch collects garbage only in a process whose memory is limited to a share below 1. This share is never reached:
/// CUDA itself takes more than the rest.
constexpr const char* kNearlyAllMemory = ",per_process_memory_fraction:0.9999";

bool sets_nothing(const Config& c) {
  return !c.expandable_segments && !c.max_split_size_mb && !c.roundup_power2_divisions &&
         !c.garbage_collection_threshold;
}

double share_pct(int64_t part, int64_t whole) {
  return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string observed(const MemoryStats& memory) {
  const auto size = [](int64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  return fmt::format(
      "{} allocation retr{}, {} to the driver, {}; {:.1f} % fragmentation (tensors used at most {} of {} reserved); at "
      "the step's end "
      "{:.1f} % of the reserved memory was free, {} of it in parts of split blocks",
      with_commas(memory.retries), memory.retries == 1 ? "y" : "ies", counted(memory.device_allocs, "request"),
      counted(memory.segments, "fixed segment"),
      share_pct(memory.peak_reserved - memory.peak_allocated, memory.peak_reserved), size(memory.peak_allocated),
      size(memory.peak_reserved), share_pct(memory.reserved - memory.allocated, memory.reserved),
      size(memory.inactive_split));
}

std::string why_not(const StepTrace& seen, const std::string& settings, bool expandable) {
  if (seen.device_allocator_settings != settings)
    return fmt::format("libtorch has other settings: '{}'", seen.device_allocator_settings);
  if (seen.device_memory.device_allocs == 0) return "the step used no memory of libtorch's allocator";
  if (expandable && seen.device_memory.segments > 0) return "some memory is in segments that cannot grow";
  return "";
}

}  // namespace

std::string settings_text(const Config& config) {
  std::string text = fmt::format("expandable_segments:{}", config.expandable_segments ? "True" : "False");
  if (config.max_split_size_mb) text += fmt::format(",max_split_size_mb:{}", *config.max_split_size_mb);
  if (config.roundup_power2_divisions)
    text += fmt::format(",roundup_power2_divisions:{}", *config.roundup_power2_divisions);
  if (config.garbage_collection_threshold)
    text += fmt::format(",garbage_collection_threshold:{}", *config.garbage_collection_threshold) + kNearlyAllMemory;
  return text;
}

void check(OptionChecks& checks, const Config& config) {
  const std::string key = "optimizations.cuda_allocator.";
  const auto& divisions = config.roundup_power2_divisions;
  if (divisions && !std::has_single_bit(static_cast<uint64_t>(*divisions)))
    checks.refuse(key + "roundup_power2_divisions", fmt::format("must be a power of two: {}", *divisions));
  if (config.expandable_segments && config.max_split_size_mb)
    checks.refuse(key + "max_split_size_mb",
                  "blocks of expandable segments are always split; add expandable_segments: false");
  if (config.expandable_segments && config.garbage_collection_threshold)
    checks.refuse(key + "garbage_collection_threshold",
                  "expandable segments are never collected; add expandable_segments: false");
  if (sets_nothing(config))
    checks.refuse(key + "expandable_segments",
                  "false is libtorch's default, so with nothing else this does nothing; "
                  "set another option, or cuda_allocator: false");
}

Outcome apply(Plan& plan, const Config& config) {
  if (plan.device.is_cpu()) return Outcome::none("it sets the allocator of GPU memory; this plan runs on the CPU");
  const std::string settings = settings_text(config);
  set_device_allocator(plan.process, settings);
  return Outcome::applied(
      fmt::format("libtorch's GPU allocator has the settings {}", settings),
      [settings, expandable = config.expandable_segments](const StepTrace& seen) {
        const std::string reason = why_not(seen, settings, expandable);
        return Receipt{.observed = observed(seen.device_memory), .effective = reason.empty(), .reason = reason};
      });
}

}  // namespace trainopt::cuda_allocator
