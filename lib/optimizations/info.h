// The properties of an optimization that the catalogue lists.
#pragma once

#include <string_view>

namespace trainopt {

/// How training with an optimization compares with plain training from the same seed.
enum class Exactness {
  same_bits,  ///< losses and weights are bit-identical
  same_math,  ///< the same formulas, rounded differently: each loss agrees within Info::tolerance
  new_math    ///< training changes on purpose; the optimization's own tests judge it
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
  const char* name;  ///< the switch's name in plans, receipts and `ablate`
  Exactness exactness;
  double tolerance = 0;         ///< for same_math: relative tolerance of each loss in a short run
  bool in_every_recipe = true;  ///< false: exactness fails with some recipe options, which the folder's README names
  /// It draws other random numbers (dropout, crops) or splits a step into other micro-batches. `compare` then judges
  /// its numbers against a run with another seed; otherwise against a run with rounded weights.
  bool other_draws = false;
  /// The value of the option without the optimization; null: the default.
  const char* off = "null";
};

}  // namespace trainopt
