// Which part of a gradient passes: all of it (open), where scale · x + shift > 0 (relu), or where the output is > 0
// (output).
#pragma once

namespace trainopt::kernels {

enum class Gate { open, relu, output };

}  // namespace trainopt::kernels
