// Weights held in bfloat16, without a float32 copy. The optimizer computes in float32 and rounds its results, by
// default stochastically (Gupta et al. 2015).
#pragma once

#include "config/describe.h"
#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
struct OptionChecks;
}  // namespace trainopt

namespace trainopt::precision {

inline constexpr Info kInfo{"precision", Exactness::new_math};

enum class WeightType { bfloat16 };

struct Config {
  WeightType weights = WeightType::bfloat16;
  bool stochastic_rounding = true;
  std::vector<std::string> keep_float32;
};

void check(OptionChecks& checks, const Config& config);
/// Throws UserError for a word of keep_float32 that chooses no parameter (chosen_parameters()).
Outcome apply(Plan& plan, const Config& config);

}  // namespace trainopt::precision

template <>
struct trainopt::Choices<trainopt::precision::WeightType> {
  static constexpr std::array all = {Choice<precision::WeightType>{"bfloat16", precision::WeightType::bfloat16},
                                     Choice<precision::WeightType>{"bf16", precision::WeightType::bfloat16}};
};

namespace trainopt::precision {

template <class V>
void describe(V& v, Config& c) {
  v.field("weights", c.weights, "The type of matrices, filters and embeddings; norms and biases are always float32.");
  v.field("stochastic_rounding", c.stochastic_rounding,
          "Round new weights up or down at random, so that they are right on average; false: to nearest, which loses "
          "updates below half a step of bfloat16.");
  v.field("keep_float32", c.keep_float32,
          "Parameters that stay float32: embedding, the name of a unit, or a parameter's name or its beginning up to a "
          "dot.");
}

}  // namespace trainopt::precision
