// Linear layers whose three products, forward and backward, have 8-bit inputs (Micikevicius et al. 2022).
#pragma once

#include "config/describe.h"
#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
struct OptionChecks;
}  // namespace trainopt

namespace trainopt::fp8 {

inline constexpr Info kInfo{"fp8", Exactness::new_math};

/// What one scale factor applies to.
enum class Scaling { tensorwise, rowwise };

struct Config {
  Scaling recipe = Scaling::tensorwise;
  int64_t amax_history = 0;
};

void check(OptionChecks& checks, const Config& config);
Outcome apply(Plan& plan, const Config& config);

}  // namespace trainopt::fp8

template <>
struct trainopt::Choices<trainopt::fp8::Scaling> {
  static constexpr std::array all = {Choice<fp8::Scaling>{"tensorwise", fp8::Scaling::tensorwise},
                                     Choice<fp8::Scaling>{"rowwise", fp8::Scaling::rowwise}};
};

namespace trainopt::fp8 {

template <class V>
void describe(V& v, Config& c) {
  v.field("recipe", c.recipe,
          "tensorwise: one scale per tensor, output gradients in e5m2; rowwise: one per row, everything in e4m3.");
  v.field("amax_history", c.amax_history,
          "tensorwise: scale by the largest magnitude of so many earlier steps (delayed scaling); 0: of the tensor "
          "itself.",
          in_range(0, 1024));
}

}  // namespace trainopt::fp8
