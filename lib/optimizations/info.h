// What the catalogue says of an optimization.
#pragma once

#include <string_view>

namespace trainopt {

/// How training with an optimization compares with the plain training from the same seed.
enum class Exactness {
  same_bits,  ///< losses and weights are equal to the bit
  same_math,  ///< the same formulas, rounded differently: each loss agrees within Info::tolerance
  new_math    ///< it trains something else on purpose and is judged by properties of its own
};

constexpr std::string_view word_of(Exactness exactness) {
  switch (exactness) {
    case Exactness::same_bits:
      return "same_bits";
    case Exactness::same_math:
      return "same_math";
    case Exactness::new_math:
      return "new_math";
  }
  return "";
}

struct Info {
  const char* name;  ///< of the switch, as plans, receipts and `ablate` write it
  Exactness exactness;
  double tolerance = 0;         ///< with same_math: of each loss of a short training, relative
  bool in_every_recipe = true;  ///< false: the folder's page names options of the recipe with which it does not hold
  /// It draws other random numbers (dropout, crops) or divides a step into other micro-batches. `compare` then holds
  /// its numbers against those of another seed; without this, against those of weights that are rounded.
  bool other_draws = false;
};

}  // namespace trainopt
