// What a fused update says of itself in a StepTrace, and the receipt made of it.
#pragma once

#include "train/receipt.h"

namespace trainopt::fused_optimizer {

/// Posted by an update of all parameters at once, with its numbers in the order of Update.
inline constexpr const char* kUpdateLabel = "trainopt::fused_update";
/// Posted each time all gradients are measured before such an update.
inline constexpr const char* kMeasureLabel = "trainopt::gradient_measure";

/// What an update took along.
struct Update {
  int64_t tensors = 0, launches = 0, copies = 0;          ///< copies: of weights, in 16 bits
  bool scaled = false, clipped = false, cleared = false;  ///< gradients, as the update read them
};

void post(const Update& update);
/// All zeros if the step had none.
Update update_of(const StepTrace& trace);
/// Casts of float32 parameters to 16 bits, by autocast or anybody.
int64_t casts_of_parameters(const StepTrace& trace);

Receipt receipt(const StepTrace& trace);

}  // namespace trainopt::fused_optimizer
