// How fast a job's devices multiply at best, as measured by `trainopt roofline`.
#pragma once

#include "roofline/roofline.h"

#include <optional>
#include <string>

namespace trainopt {

struct PeakSpeed {
  double flops_per_s = 0;               ///< of all devices of the job, for products of the job's type; 0: not known
  std::string type;                     ///< of the products, such as "float32"
  std::string unknown;                  ///< why it is not known
  std::optional<double> by_data_sheet;  ///< the measured rate as a share of the data sheet's; null: none is known

  std::optional<double> operation_us;      ///< of the host, for a small operation
  std::optional<Roofline> measured;        ///< all peaks of this machine; null: not measured
  std::optional<double> memory_bound_pct;  ///< of the model's least time by roofline; null: not known

  /// Time of a step with these multiplications; null if the peak is not known.
  std::optional<double> least_ms(double flops) const {
    return flops_per_s > 0 ? std::optional(1e3 * flops / flops_per_s) : std::nullopt;
  }
};

}  // namespace trainopt
