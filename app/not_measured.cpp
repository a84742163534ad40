#include "app/not_measured.h"

namespace trainopt {
namespace {

std::string reason_of(Metric metric, const Plan& plan) {
  switch (metric) {
    case Metric::grad_norm:
      return "train.max_grad_norm is not set";
    case Metric::nonfinite:
      return "only train.on_nonfinite: skip and rerun, and debug.anomaly, check every step";
    case Metric::loss_scale:
      return "only float16 has a loss scale";
    case Metric::copy_ms:
      if (plan.device.is_cpu()) return "on the CPU batches are used in place, without a copy";
      if (!plan.data.dataset) return "synthetic batches are created on the device, without a copy";
      return "no copy was known to be complete when a record was taken";
    case Metric::forward_ms:
    case Metric::backward_ms:
      return "a CUDA graph runs forward and backward in one piece";
    case Metric::tokens_per_s:
      return "the samples are images, not text";
    case Metric::mfu_pct:
      return plan.peak.unknown;
    case Metric::comm_exposed_ms:
    case Metric::all_reduce_mib:
    case Metric::reduce_scatter_mib:
    case Metric::all_gather_mib:
    case Metric::broadcast_mib:
    case Metric::send_mib:
      return "a single rank exchanges nothing";
    case Metric::storage_mib:
      return "nothing was read of object storage during steps";
    case Metric::cache_hit_pct:
      return "nothing was read through a data.cache of object storage during steps";
    default:
      return "telemetry took no sample during any recorded step";
  }
}

}  // namespace

Reasons why_not_measured(const Plan& plan, const std::bitset<kMetricCount>& recorded, const Reasons& telemetry) {
  Reasons reasons;
  for (const MetricInfo& metric : kCatalogue) {
    if (recorded[static_cast<size_t>(metric.metric)]) continue;
    const std::string name(metric.name);
    const auto known = telemetry.find(name);
    reasons[name] = recorded.none()            ? "no step was completed"
                    : known != telemetry.end() ? known->second
                                               : reason_of(metric.metric, plan);
  }
  return reasons;
}

}  // namespace trainopt
