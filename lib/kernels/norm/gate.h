// Which part of a gradient counts: all; where scale · x + shift is positive; where the output is.
#pragma once

namespace trainopt::kernels {

enum class Gate { open, relu, output };

}  // namespace trainopt::kernels
