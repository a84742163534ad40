// Activations of chosen units are dropped after forward and computed again in backward (Chen et al. 2016).
#pragma once

#include "config/describe.h"
#include "optimizations/info.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {
struct Plan;
struct Outcome;
struct OptionChecks;
}  // namespace trainopt

namespace trainopt::activation_checkpointing {

inline constexpr Info kInfo{"activation_checkpointing", Exactness::same_bits};

/// Posted with RECORD_FUNCTION for each unit in backward: bytes kept since forward, bytes that exist again
/// because of it (0: nobody counts memory), microseconds that it took the host.
inline constexpr const char* kRecomputedLabel = "trainopt::recomputed";

enum class Policy { full, selective };

struct Config {
  std::optional<int64_t> every;
  std::vector<std::string> units;
  Policy policy = Policy::full;
};

void check(OptionChecks& checks, const Config& config);
/// Throws UserError for a name that no unit of the model has.
Outcome apply(Plan& plan, const Config& config);

}  // namespace trainopt::activation_checkpointing

template <>
struct trainopt::Choices<trainopt::activation_checkpointing::Policy> {
  static constexpr std::array all = {
      Choice<activation_checkpointing::Policy>{"full", activation_checkpointing::Policy::full},
      Choice<activation_checkpointing::Policy>{"selective", activation_checkpointing::Policy::selective}};
};

namespace trainopt::activation_checkpointing {

template <class V>
void describe(V& v, Config& c) {
  v.field("every", c.every,
          "Compute every n-th block again. Blocks are the units that have products, without the first and the last "
          "unit; null: every block, or the named units.",
          in_range(1, 1e4));
  v.field("units", c.units, "Names of the units to compute again, such as transformer.h.0 or layer1.0.");
  v.field("policy", c.policy,
          "full keeps each unit's input; selective also keeps the results of its matrix products and convolutions.");
}

}  // namespace trainopt::activation_checkpointing
