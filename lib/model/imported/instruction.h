// An operation of an imported program, looked up once and ready to run: libtorch's dispatcher computes it as it
// computes the same operation of a Python program, so autograd, autocast and the meta device work as everywhere.
#pragma once

#include "model/layers.h"
#include "model/program/flops.h"

#include <ATen/core/ivalue.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace trainopt {

/// The program's values, by ProgramValue::index. None where nothing is computed yet, or no longer needed.
using ProgramValues = std::vector<c10::IValue>;

struct Instruction {
  std::function<void(ProgramValues&, const ForwardContext&)> run;
  std::vector<int64_t> last_uses = {};  ///< values that no later instruction of the unit needs
};

/// What the instructions of a program have in common.
struct InstructionSite {
  std::string path;  ///< names the archive in messages
  at::Device device;
  std::map<int64_t, at::Tensor> tensors;                   ///< parameters, buffers and constants, by the value's index
  std::map<int64_t, WeightCopy> copies = {};               ///< 16-bit copies of what found layers compute with
  std::shared_ptr<const Operations> operations = nullptr;  ///< what found layers call
};

/// A node of the program, or one that stands for a found layer.
/// Throws UserError(checkpoint) that names the operation and its module if this build has no such operation, or if it
/// draws random numbers and takes no generator.
Instruction make_instruction(const ProgramNode& node, const ProgramGraph& graph, const InstructionSite& site);

/// Runs a layer that was found in a program (found_layers.h) through its slot. `site` has the layer's tensors and their
/// copies. Where a slot's promise does not hold for the tensors of a step, the plain operations run.
Instruction make_layer_instruction(const ProgramNode& node, const ProgramGraph& graph, const InstructionSite& site);

/// Throws UserError if a batch has one value of each channel: PyTorch refuses it in Python, so no graph has the check.
void require_two_values(const at::Tensor& input);

/// Whether an operation draws random numbers when it runs with these arguments. Dropout of rate 0 does not.
bool draws(const ProgramNode& node);
/// The constant argument of this name; null if it has none.
const ProgramItem* constant_argument(const ProgramNode& node, std::string_view name);
/// The value given as the argument of this name; null if it is a constant or absent.
std::optional<ProgramValue> value_argument(const ProgramNode& node, std::string_view name);

}  // namespace trainopt
