#include "optimizations/host_allocator/host_allocator.h"

#include "base/units.h"
#include "train/plan.h"

namespace trainopt::host_allocator {

Outcome apply(Plan& plan, const Config& config) {
  if (!plan.device.is_cpu())
    return Outcome::none("the step's tensors are in GPU memory, which libtorch already caches");
  plan.process.caching_allocator = true;
  plan.process.huge_pages = config.huge_pages;
  return Outcome::applied(
      config.huge_pages ? "large CPU blocks are cached between steps, in huge pages"
                        : "large CPU blocks are cached between steps",
      [](const StepTrace& seen) {
        const bool effective = seen.allocator.cache_hits > 0;
        return Receipt{.observed = fmt::format("{} in the step, {} served from the cache, {} held by the allocator",
                                               counted(seen.page_faults, "page fault"),
                                               counted(seen.allocator.cache_hits, "allocation"),
                                               human_bytes(static_cast<double>(seen.allocator.mapped_bytes))),
                       .effective = effective,
                       .reason = effective ? "" : "no tensor was large enough to be cached"};
      });
}

}  // namespace trainopt::host_allocator
