// What the numbers of a right B may differ by: which training beside A and B says so.
#pragma once

#include "config/describe.h"
#include "recipe/recipe.h"

namespace trainopt {

/// The twin of A whose distances from A are the yardstick for B's.
enum class Yardstick {
  perturbed,  ///< the same batches from weights that are a little off: B does what A does, rounded otherwise
  reseeded    ///< other batches from the same weights: B draws other numbers than A, or cuts its steps otherwise
};
template <>
struct Choices<Yardstick> {
  static constexpr std::array all = {Choice<Yardstick>{"perturbed", Yardstick::perturbed},
                                     Choice<Yardstick>{"reseeded", Yardstick::reseeded}};
};

/// `reseeded` if the recipes differ in what a step's samples, its random draws or its division into micro-batches
/// follow from, or in a switch that declares other_draws (optimizations/info.h).
Yardstick yardstick(const Recipe& a, const Recipe& b);

}  // namespace trainopt
