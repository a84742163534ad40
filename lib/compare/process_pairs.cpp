#include "compare/process_pairs.h"

namespace trainopt {

Baseline make_twin_baseline(const ArmSpec& a, Yardstick kind, ArmFactory& factory, const CompareOptions& options) {
  const WarmArm twin = warm_up("twin", factory.make(twin_of(a, kind), ArmHost::own_process), options);
  Baseline baseline;
  baseline.twin_folder = twin.arm->folder();
  baseline.yardstick = kind;
  baseline.twin_first_steps = twin.first_steps;
  return baseline;
}

Numerics numbers_of_pair(Baseline twin, const WarmArm& a, const WarmArm& b) {
  twin.a = a;
  return numbers(twin, b);
}

Comparison compare_processes(const SetOptions& sets, const CompareOptions& options, Clock::time_point until,
                             const Observer& observer) {
  const std::function<Comparison(const Sampling&)> comparison = [&](const Sampling& sampling) {
    return comparison_of(sampling, options);
  };
  return comparison(sample_sets(sets, options, until, observer, report_and_keep(comparison, observer)));
}

}  // namespace trainopt
