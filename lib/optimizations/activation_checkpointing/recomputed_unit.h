// A unit whose activations are computed a second time in backward instead of being kept.
#pragma once

#include "model/unit.h"
#include "model/weights_file.h"

#include <memory>

namespace trainopt::activation_checkpointing {

struct Recomputation {
  bool keeps_products = false;  ///< of matrices and convolutions, whose results are then not computed again
  bool draws = false;           ///< the unit draws random numbers in training
};

/// Posted with RECORD_FUNCTION for each unit in backward: bytes kept since forward, bytes that exist again
/// because of it (0: nobody counts memory), microseconds that it took the host.
inline constexpr const char* kRecomputedLabel = "trainopt::recomputed";

/// `state`: all parameters and buffers that `inner` computes with. Same results and gradients as `inner`, in all bits;
/// buffers are updated once.
std::unique_ptr<Unit> make_recomputed_unit(std::unique_ptr<Unit> inner, const NamedTensors& state,
                                           const Recomputation& how);

}  // namespace trainopt::activation_checkpointing
