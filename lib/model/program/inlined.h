// Graphs within a graph, as torch.no_grad and torch.autocast make them, put in their places.
#pragma once

#include "model/program/program.h"

namespace trainopt {

/// The graph with the nodes of wrap_with_set_grad_enabled and wrap_with_autocast in place of these, marked by
/// no_gradients and no_autocast, and without the nodes that only check sizes, and with
/// reshape for view, which channels-last needs. Throws UserError(checkpoint) for an
/// autocast that is on: the recipe decides on precision.
ProgramGraph inlined(const ProgramGraph& graph);

}  // namespace trainopt
