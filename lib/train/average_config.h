// The section `average` of a recipe.
#pragma once

#include "config/describe.h"

namespace trainopt {

struct NoAverageConfig {
  static constexpr std::string_view kName = "none";
};
template <class V>
void describe(V&, NoAverageConfig&) {}

struct EmaConfig {
  static constexpr std::string_view kName = "ema";
  double decay = 0.999;
};
template <class V>
void describe(V& v, EmaConfig& c) {
  v.field("decay", c.decay, "Part of the average that each step keeps.", half_open(0.0, 1.0));
}

struct SwaConfig {
  static constexpr std::string_view kName = "swa";
  std::optional<int64_t> start_step;
  int64_t every_n_steps = 1;
};
template <class V>
void describe(V& v, SwaConfig& c) {
  v.field("start_step", c.start_step, "First step that counts; null: after three quarters of the run's steps.",
          in_range(1, 1e15), alias("swa_start"));
  v.field("every_n_steps", c.every_n_steps, "Steps between those that count.", in_range(1, 1e15));
}

using AverageConfig = std::variant<NoAverageConfig, EmaConfig, SwaConfig>;
template <class V>
void describe(V& v, AverageConfig& c) {
  v.variant("name", c,
            "An average of the weights, evaluated and saved beside them: ema, with weights that fall exponentially, or "
            "swa, in which all count alike (Izmailov et al. 2018).");
}

}  // namespace trainopt
