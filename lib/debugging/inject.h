// Fault injection, to see how a run reacts: `trainopt run --inject oom@20`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct Plan;

enum class InjectedFault {
  nan,       ///< the step's input is NaN, and so is its loss
  gradient,  ///< a gradient is infinite although the loss is not
  oom,       ///< memory runs out at the end of a micro-batch's backward
  slow,      ///< the step takes 100 ms longer
  gpu,       ///< CUDA reports an illegal memory access
  ecc,       ///< CUDA reports an uncorrectable error of the GPU's memory
  hang,      ///< the step never ends
  bit_flip,  ///< after the step, one bit of one weight is inverted
  kill,      ///< SIGKILL to this process
  straggle   ///< this and every later step take 5 % longer than the median step before; other ranks wait that long
};

struct Injection {
  InjectedFault fault = InjectedFault::nan;
  int64_t step = 1;
  bool every_time = false;      ///< also when the step is retried, like bad data; otherwise once, like a hardware fault
  std::optional<int64_t> rank;  ///< only on this rank; null: on all ranks, a bit_flip on the last one
};

/// "nan@12": once, in step 12; "oom@12+": each time step 12 is tried; "hang@12:1": only on rank 1. Throws UserError
/// listing the valid forms.
Injection parse_injection(const std::string& text);

/// Wraps the plan's runner with the faults and adds a note to the plan. Throws UserError if the job has no such rank.
void inject(Plan& plan, const std::vector<Injection>& injections);

/// The delay of an injected straggler: every step from `first` on takes 5 % longer than the median of those before it.
class StragglerDelay {
 public:
  static constexpr double kShare = 0.05;
  static constexpr int64_t kMeasuredSteps = 4;  ///< at least so many steps come before `first`

  explicit StragglerDelay(int64_t first) : first_(first) {}

  /// Seconds to sleep at the end of `step`, which has taken `seconds` so far. Call once per step. Throws UserError if
  /// fewer than kMeasuredSteps came before `first`, as after a resume.
  double after(int64_t step, double seconds);

 private:
  int64_t first_;
  std::vector<double> before_;  ///< seconds of the steps before `first_`
};

}  // namespace trainopt
