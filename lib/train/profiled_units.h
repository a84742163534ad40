// Labels for the forward and backward of each unit of a model.
#pragma once

namespace trainopt {

class Model;

/// Wraps every unit, so that its forward runs under the label "unit::NAME" and its backward under
/// "unit_backward::NAME". Computes nothing else. Call once, after all other wrappers, whose work the labels then cover.
void label_units(Model& model);

}  // namespace trainopt
