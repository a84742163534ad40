#include "data/loader_shares.h"

namespace trainopt {

LoaderShares LoaderShares::of(const LoaderWork& work) {
  if (work.samples == 0 || work.busy_ns <= 0) return {};
  const auto busy = static_cast<double>(work.busy_ns);
  const auto share = [&](int64_t part_ns) { return 100 * static_cast<double>(part_ns) / busy; };
  const auto& [read_ns, decode_ns, transform_ns] = work.stages;
  return {.workers_busy_pct = work.worker_ns > 0 ? 100 * busy / static_cast<double>(work.worker_ns) : 0,
          .read_pct = share(read_ns),
          .decode_pct = share(decode_ns),
          .transform_pct = share(transform_ns),
          .other_pct = share(work.busy_ns - read_ns - decode_ns - transform_ns),
          .sample_us = busy * 1e-3 / static_cast<double>(work.samples)};
}

Json to_json(const LoaderShares& shares) {
  return {
      {"workers_busy_pct", shares.workers_busy_pct}, {"read_pct", shares.read_pct},   {"decode_pct", shares.decode_pct},
      {"transform_pct", shares.transform_pct},       {"other_pct", shares.other_pct}, {"sample_us", shares.sample_us}};
}

}  // namespace trainopt
