// Runs a layer that was found in a program (found_layers.h) through its slot.
#pragma once

#include "model/imported/instruction.h"

namespace trainopt {

/// `site` has the layer's tensors and their copies. Where a slot's promise does not hold for the tensors of a step, the
/// plain operations run.
Instruction make_layer_instruction(const ProgramNode& node, const InstructionSite& site);

}  // namespace trainopt
