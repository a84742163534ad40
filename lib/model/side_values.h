// What units of an imported program leave to later ones beside their output.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <vector>

namespace trainopt {

/// What one micro-batch has.
struct SideValues {
  std::vector<c10::IValue> values;  ///< by ProgramValue::index
  at::Tensor logits;                ///< what a program returns beside its own loss
};

/// A side value that a unit before some place leaves to one after it, as a stage that begins there sees it.
struct PassedValue {
  size_t index;                      ///< in SideValues::values
  bool is_input = false;             ///< the model's own input
  c10::IValue number = {};           ///< if it follows from the sizes of the model's input; otherwise None
  std::vector<int64_t> sizes = {};   ///< a tensor that is neither has these
  at::ScalarType type = at::kFloat;  ///< the type of such a tensor without autocast
};

/// `unit`: the place is before it. `input`: the sizes of the model's input. Throws UserError that names the two units
/// if a value's sizes do not follow from those of the input, or if it is a number that does not follow from them.
using PassedValues = std::function<std::vector<PassedValue>(size_t unit, at::IntArrayRef input, bool training)>;

}  // namespace trainopt
