// The yardstick for numerical differences: a third training, A's twin, shows how much a correct B may differ from A.
#pragma once

#include "config/describe.h"
#include "recipe/recipe.h"

namespace trainopt {

/// The kind of twin whose distances from A are the yardstick for B's.
enum class Yardstick {
  perturbed,  ///< same batches, slightly perturbed weights: for a B that differs from A only by rounding
  reseeded    ///< other batches, same weights: for a B with other random draws or other micro-batches than A
};
template <>
struct Choices<Yardstick> {
  static constexpr std::array all = {Choice<Yardstick>{"perturbed", Yardstick::perturbed},
                                     Choice<Yardstick>{"reseeded", Yardstick::reseeded}};
};

/// `reseeded` if the recipes differ in anything that determines a step's samples, its random draws or its division into
/// micro-batches, or in a switch that declares other_draws (optimizations/info.h).
Yardstick yardstick(const Recipe& a, const Recipe& b);

}  // namespace trainopt
