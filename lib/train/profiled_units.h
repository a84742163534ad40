// Labels for the forward and backward of each unit of a model.
#pragma once

#include <string_view>

namespace trainopt {

class Model;

// Each label is one of these, followed by the unit's name.
inline constexpr std::string_view kUnitLabel = "unit::", kUnitBackwardLabel = "unit_backward::";

/// Wraps every unit, so that its forward and its backward each run under a label. Computes nothing else. Call after all
/// other wrappers, whose work the labels then cover. Does nothing if they are the outermost wrappers already.
void label_units(Model& model);

}  // namespace trainopt
