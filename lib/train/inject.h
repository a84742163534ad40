// Faults on purpose, so that anyone can see what a run does about them: `trainopt run --inject oom@20`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainopt {

struct Plan;

enum class InjectedFault {
  nan,       ///< the step's input is not a number, and so its loss
  gradient,  ///< a gradient is infinite although the loss is not
  oom,       ///< memory runs out at the end of a micro-batch's backward
  slow,      ///< the step takes 100 ms longer
  hang,      ///< the step never ends
  kill       ///< SIGKILL to this process
};

struct Injection {
  InjectedFault fault = InjectedFault::nan;
  int64_t step = 1;
  bool every_time =
      false;  ///< also when the step is tried again, as bad data would; otherwise once, as a fault of the hardware
};

/// "nan@12": once, in step 12; "oom@12+": each time it is tried. Throws UserError naming what is known.
Injection parse_injection(const std::string& text);

/// Puts the faults around the plan's runner; its notes say so.
void inject(Plan& plan, const std::vector<Injection>& injections);

}  // namespace trainopt
