#include "optimizations/loading/loading.h"

#include "base/units.h"
#include "train/plan.h"

namespace trainopt::loading {
namespace {

constexpr double kMaxWaited = 0.9;  ///< share of the copying time; above it, copies did not overlap with steps
constexpr const char* kSynthetic = "synthetic batches are already on the device";

/// Why nothing is loaded during training; null if something is.
const char* why_nothing_loads(const Plan& plan) {
  if (!plan.data.dataset) return kSynthetic;
  if (plan.data.device_dataset) return "data.cache: device reads the data set once, before the first step";
  return nullptr;
}

}  // namespace

Outcome workers(Plan& plan, std::optional<int64_t> chosen) {
  if (!plan.data.dataset) return Outcome::none(kSynthetic);
  const int64_t wanted = chosen.value_or(plan.machine.cores);
  plan.loader.num_workers = wanted;
  return Outcome::applied(
      chosen ? fmt::format("{} in addition to the training thread",
                           wanted == 1 ? "1 loader thread" : fmt::format("{} loader threads", wanted))
             : fmt::format("at most {}; the run measures how many load fastest", counted(wanted, "loader thread")),
      [wanted](const StepTrace& seen) {
        const bool effective = seen.loader.threads > 0;  // on a busy machine one thread may load all of a small run
        return Receipt{
            .observed = fmt::format("{} of {} loaded samples", seen.loader.threads, counted(wanted, "thread")),
            .effective = effective,
            .reason = effective ? "" : "the training thread loaded all samples"};
      });
}

Outcome persistent_workers(Plan& plan) {
  if (const char* why = why_nothing_loads(plan)) return Outcome::none(why);
  if (plan.loader.num_workers == 0) return Outcome::none("there are no workers (data.num_workers: 0)");
  if (plan.steps && *plan.steps <= plan.data.schedule().steps_per_epoch())
    return Outcome::none("the run ends within its first epoch");
  plan.loader.persistent_workers = true;
  return Outcome::applied("loader threads keep prefetching across epoch boundaries", [](const StepTrace& seen) {
    const bool effective = seen.loader.thread_starts == 1;
    return Receipt{.observed = fmt::format("{}, started {}", counted(seen.loader.threads, "thread"),
                                           effective ? "once" : fmt::format("{} times", seen.loader.thread_starts)),
                   .effective = effective,
                   .reason = effective ? "" : "threads were restarted"};
  });
}

Outcome prefetch_factor(Plan& plan, int64_t wanted) {
  if (const char* why = why_nothing_loads(plan)) return Outcome::none(why);
  if (plan.loader.num_workers == 0) return Outcome::none("there are no workers to prefetch (data.num_workers: 0)");
  plan.loader.prefetch_factor = wanted;
  const int64_t buffers = wanted * plan.loader.num_workers + 2;
  return Outcome::applied(
      fmt::format("{} prefetched per worker", counted(wanted, "batch", "es")), [buffers](const StepTrace& seen) {
        const bool effective = seen.loader.buffers == buffers;
        return Receipt{.observed = fmt::format("{} of {} buffers allocated", seen.loader.buffers, buffers),
                       .effective = effective,
                       .reason = effective ? "" : "data.memory_limit allows no more"};
      });
}

Outcome batch_size(Plan&, int64_t wanted) {
  return Outcome::applied(
      fmt::format("{} per micro-batch", counted(wanted, "sample")), [wanted](const StepTrace& seen) {
        const bool effective = seen.largest_micro_batch >= wanted;  // the last one of an epoch may have joined it
        return Receipt{.observed = fmt::format("largest micro-batch: {}", counted(seen.largest_micro_batch, "sample")),
                       .effective = effective,
                       .reason = effective ? "" : "no micro-batch was full"};
      });
}

Outcome pin_memory(Plan& plan) {
  if (const char* why = why_nothing_loads(plan)) return Outcome::none(why);
  if (!plan.device.is_cuda())
    return Outcome::none("page-locked memory is for copies to a GPU; this plan runs on the CPU");
  plan.loader.pin_memory = true;
  return Outcome::applied("batch buffers are page-locked", [](const StepTrace& seen) {
    const bool effective = seen.loader.pinned_bytes_copied > 0;
    const CopyTimes& copies = seen.loader.copies;
    const std::string rate =
        copies.ms > 0 ? fmt::format(", at {}/s", human_bytes(static_cast<double>(copies.bytes) / copies.ms * 1e3)) : "";
    return Receipt{.observed = fmt::format("{} of {} per step copied from page-locked memory{}",
                                           human_bytes(static_cast<double>(seen.loader.pinned_bytes_copied)),
                                           human_bytes(static_cast<double>(seen.loader.bytes_copied)), rate),
                   .effective = effective,
                   .reason = effective ? "" : "no page-locked bytes were copied"};
  });
}

Outcome non_blocking(Plan& plan) {
  if (const char* why = why_nothing_loads(plan)) return Outcome::none(why);
  if (!plan.device.is_cuda()) return Outcome::none("there is no copy to overlap; this plan runs on the CPU");
  plan.loader.non_blocking = true;
  return Outcome::applied("batches are copied on a second stream while the step runs", [](const StepTrace& seen) {
    const CopyTimes& copies = seen.loader.copies;
    const double waited = copies.ms > 0 ? copies.exposed_ms / copies.ms : 0;
    const std::string wait =
        copies.ms > 0 ? fmt::format("; the steps waited for {:.0f} % of the time that copies took", 100 * waited) : "";
    const bool separate = seen.loader.overlapped_copies > 0;
    return Receipt{
        .observed =
            fmt::format("{} copies of the step ran on a separate stream{}", seen.loader.overlapped_copies, wait),
        .effective = separate,
        .reason = !separate             ? "copies ran on the step's stream"
                  : waited > kMaxWaited ? "no batch was ready early enough to be copied during the step before"
                                        : ""};
  });
}

}  // namespace trainopt::loading
