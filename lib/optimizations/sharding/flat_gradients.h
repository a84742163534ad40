// Gradients of all parameters in one tensor.
#pragma once

#include "model/weights_file.h"

namespace trainopt {

/// Makes the parameters' gradients views of one tensor of zeros, in which backward then accumulates, and returns it.
at::Tensor attach_flat_gradients(const NamedTensors& parameters);

}  // namespace trainopt
