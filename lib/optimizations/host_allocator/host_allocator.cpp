#include "optimizations/host_allocator/host_allocator.h"

#include "base/counted.h"
#include "train/plan.h"

namespace trainopt::host_allocator {

Outcome apply(Plan& plan, const Config& config) {
  if (!plan.device.is_cpu())
    return Outcome::none("the step's tensors are in the GPU's memory, where libtorch keeps blocks already");
  plan.process.caching_allocator = true;
  plan.process.huge_pages = config.huge_pages;
  return Outcome::applied(
      config.huge_pages ? "large blocks are kept between steps, in huge pages" : "large blocks are kept between steps",
      [](const StepTrace& seen) {
        const bool effective = seen.allocator.given_again > 0;
        return Receipt{.observed = fmt::format("{} in the step, {} given out again, {} held",
                                               counted(seen.page_faults, "page fault"),
                                               counted(seen.allocator.given_again, "kept block"),
                                               human_bytes(static_cast<double>(seen.allocator.held_bytes))),
                       .effective = effective,
                       .reason = effective ? "" : "no tensor was large enough to be kept"};
      });
}

}  // namespace trainopt::host_allocator
