// The FLOPs of a program's matrix products, from the shapes that the exporting machine saw.
#pragma once

#include "model/program/program.h"

#include <optional>

namespace trainopt {

/// The values of symbols by their name, such as s77. The others are 1: the batch.
using SymbolValues = std::map<std::string, int64_t>;

/// Forward FLOPs of a node for one sample: 2 × multiply-adds of convolutions, products of matrices and attention, 0 for
/// anything else. null: it multiplies matrices, and how many is not known.
std::optional<double> flops_of(const ProgramNode& node, const ProgramGraph& graph, const SymbolValues& symbols = {});

/// A size for a batch of one sample. null: the expression is not understood.
std::optional<int64_t> for_one_sample(const ProgramSize& size, const SymbolValues& symbols = {});
/// The name of a size that is a symbol alone; empty: it is not.
std::string symbol_of(const ProgramSize& size);

/// "batch_norm" of "torch.ops.aten.batch_norm.default"; empty for what is no ATen operation.
std::string_view aten_name(const std::string& target);

}  // namespace trainopt
