#include "optimizations/loading/loading.h"

#include "train/plan.h"

namespace trainopt::loading {
namespace {

constexpr const char* kSynthetic = "synthetic batches are on the device already";

bool synthetic(const Plan& plan) { return plan.data.config.dataset == DatasetKind::synthetic; }

}  // namespace

Outcome workers(Plan& plan, int64_t wanted) {
  if (synthetic(plan)) return Outcome::none(kSynthetic);
  plan.data.config.num_workers = wanted;
  return Outcome::applied(fmt::format("{} threads load beside the training thread", wanted), [wanted](const Observations& seen) {
    const bool effective = seen.loader_threads == wanted;
    return Receipt{.observed = fmt::format("{} threads loaded the step's samples", seen.loader_threads),
                   .effective = effective,
                   .reason = effective ? "" : "fewer threads than asked"};
  });
}

Outcome persistent_workers(Plan& plan) {
  if (synthetic(plan)) return Outcome::none(kSynthetic);
  if (plan.data.config.num_workers == 0) return Outcome::none("there are no workers (data.num_workers: 0)");
  plan.data.config.persistent_workers = true;
  return Outcome::applied("threads go on prefetching across the end of an epoch", [](const Observations& seen) {
    return Receipt{.observed = fmt::format("{} threads, started {} times so far", seen.loader_threads, seen.loader_starts),
                   .effective = seen.loader_starts <= 1,
                   .reason = seen.loader_starts <= 1 ? "" : "threads were started again"};
  });
}

Outcome pin_memory(Plan& plan) {
  if (synthetic(plan)) return Outcome::none(kSynthetic);
  if (!plan.device.is_cuda()) return Outcome::none("page-locked memory is for copies to a GPU; this plan runs on the CPU");
  plan.data.config.pin_memory = true;
  return Outcome::applied("batch buffers are page-locked", [](const Observations& seen) {
    const bool effective = seen.pinned_bytes_to_device > 0;
    return Receipt{.observed = fmt::format("{} of {} a step copied from page-locked memory", human_bytes(static_cast<double>(seen.pinned_bytes_to_device)),
                                           human_bytes(static_cast<double>(seen.bytes_to_device))),
                   .effective = effective,
                   .reason = effective ? "" : "no page-locked bytes were copied"};
  });
}

Outcome non_blocking(Plan& plan) {
  if (synthetic(plan)) return Outcome::none(kSynthetic);
  if (!plan.device.is_cuda()) return Outcome::none("there is no copy to overlap; this plan runs on the CPU");
  plan.data.config.non_blocking = true;
  return Outcome::applied("batches are copied on a second stream while the step runs", [](const Observations& seen) {
    const bool effective = seen.copies_beside_step > 0;
    return Receipt{.observed = fmt::format("{} copies of the step ran on a stream of their own", seen.copies_beside_step),
                   .effective = effective,
                   .reason = effective ? "" : "copies ran on the step's stream"};
  });
}

}  // namespace trainopt::loading
