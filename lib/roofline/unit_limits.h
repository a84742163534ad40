// The least time of each unit of a model by the roofline model (S. Williams, A. Waterman and D. Patterson, "Roofline:
// an insightful visual performance model for multicore architectures", CACM 52, 2009): a unit takes at least as long as
// its multiplications at the peak rate, and as its memory traffic at the peak bandwidth.
#pragma once

#include "base/json.h"
#include "model/model.h"

#include <string>
#include <vector>

namespace trainopt {

/// Forward and backward of a unit, for a micro-batch.
struct UnitLimit {
  std::string name;
  double flops = 0;  ///< three times the forward pass's
  double bytes = 0;  ///< forward reads input and parameters and writes the output; backward moves twice that
  double compute_ms = 0, memory_ms = 0;

  double least_ms() const { return compute_ms > memory_ms ? compute_ms : memory_ms; }
  bool by_memory() const { return memory_ms > compute_ms; }
  /// FLOP per byte.
  double intensity() const { return bytes > 0 ? flops / bytes : 0; }
};

struct LimitRates {
  double flops_per_s = 0, bytes_per_s = 0;
};

/// `model` may be on the meta device. `activation_bytes`: of a value between units.
std::vector<UnitLimit> unit_limits(const Model& model, int64_t batch, int64_t activation_bytes,
                                   const LimitRates& rates);

Json to_json(const std::vector<UnitLimit>& limits);
/// A table for people.
std::string unit_limits_text(const std::vector<UnitLimit>& limits);

}  // namespace trainopt
