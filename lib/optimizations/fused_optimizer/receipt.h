// What a fused update reports in a StepTrace, and the receipt built from it.
#pragma once

#include "train/receipt.h"

namespace trainopt::fused_optimizer {

/// Posted by a fused update, with its figures in the order of Update.
inline constexpr const char* kUpdateLabel = "trainopt::fused_update";
/// Posted by each pass that measures all gradients before such an update.
inline constexpr const char* kMeasureLabel = "trainopt::gradient_measure";

/// What an update did.
struct Update {
  int64_t tensors = 0, launches = 0, copies = 0;          ///< copies: parameters that have a 16-bit copy
  bool scaled = false, clipped = false, cleared = false;  ///< what it did to gradients
};

void post(const Update& update);
/// All zeros if the step had no fused update.
Update update_of(const StepTrace& trace);
/// Number of casts of float32 parameters to 16 bits, by autocast or anything else.
int64_t casts_of_parameters(const StepTrace& trace);

Receipt receipt(const StepTrace& trace);

}  // namespace trainopt::fused_optimizer
