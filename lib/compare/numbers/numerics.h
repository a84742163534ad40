// Numerical agreement: whether two arms train the same thing.
#pragma once

#include "compare/arms/arm.h"
#include "compare/numbers/tensor_noise.h"
#include "config/describe.h"
#include "model/weights_file.h"
#include "recipe/recipe.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trainopt {

// The yardstick for numerical differences: further trainings, A's twins, show how much a correct B may differ from A.

/// The kind of twins whose distances from A are the yardstick for B's.
enum class Yardstick {
  perturbed,  ///< same batches, slightly perturbed weights and gradients: for a B that differs only by rounding
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

/// Both arms start from the same weights and see the same batches. Tolerances come from further trainings, A's twins:
/// a difference well beyond theirs is neither rounding nor training noise. Tensors are judged individually only with
/// perturbed twins (tensor_noise.h): those of another seed differ too much. The other factors and minimum tolerances
/// are in numerics.cpp.
struct Numerics {
  std::string not_comparable;  ///< the reason; empty: comparable
  bool too_few_twins = false;  ///< the reason is the lack of time; more of it would allow to compare
  Yardstick yardstick = Yardstick::perturbed;
  int64_t steps = 0;                            ///< the number of first steps
  Distance loss;                                ///< mean |loss_B − loss_A| over them, relative to A's mean loss
  Distance worst_loss;                          ///< largest |loss_B − loss_A|, relative to A's mean loss
  Distance gradient_direction, gradient_norm;   ///< the first gradients as one vector
  Distance update_direction, update_norm;       ///< the parameters' change over kUpdateSteps steps as one vector
  TensorAgreement gradients, updates, buffers;  ///< gradients, parameters' and buffers' changes, tensor by tensor
  double gradient_norm_ratio = 1, update_norm_ratio = 1;  ///< B's divided by A's
  std::vector<double> losses_a, losses_b, losses_twin;    ///< losses_twin: the first twin's

  bool agree() const;
  /// One sentence for each tolerance that B exceeds.
  std::vector<std::string> disagreements() const;
  /// Differences that this comparison would not detect, a few words each.
  std::vector<std::string> not_seen() const;
};

/// The results of an arm's first turn.
struct FirstSteps {
  const Turn& turn;
  std::filesystem::path folder;
};
/// The tensors of A and B in pairs, in A's order. nullopt: names or shapes differ. `absent_is_zero`: a tensor that only
/// one of them has counts as zeros in the other (a gradient that backward did not reach).
std::optional<std::vector<TensorPair>> pair_tensors(const NamedTensors& a, const NamedTensors& b,
                                                    bool absent_is_zero = false);

/// The gradients of each tensor in all steps that both arms' folders have files of, as one long vector. nullopt: shapes
/// differ. Throws UserError if a file cannot be read.
std::optional<std::vector<TensorPair>> pair_gradients(const std::filesystem::path& a, const std::filesystem::path& b);

/// Reads the files of the arms' first turns and compares B with A; `twins` are A's twins of the kind `yardstick`, at
/// least one. Throws UserError if a file cannot be read.
Numerics compare_numbers(const FirstSteps& a, const FirstSteps& b, std::span<const FirstSteps> twins,
                         Yardstick yardstick);

}  // namespace trainopt
