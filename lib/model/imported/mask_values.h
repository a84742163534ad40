// The values of attention masks that follow from a program's constants and sizes alone.
#pragma once

#include "model/imported/layer_view.h"

#include <cstdint>

namespace trainopt {

/// What a mask's values mean: true keeps a score, true hides it, or 0 keeps it and a large negative number hides it.
enum class MaskForm { keeps, hides, added };

/// Which scores a mask hides: those of later tokens, as a causal one does, or others.
enum class Hidden { none, later, others, unknown };

/// `user`: the node that takes the mask. Unknown: it depends on parameters, on the data or on the size of the batch.
Hidden hidden_by(const LayerView& view, const ProgramValue& mask, MaskForm form, int64_t tokens, size_t user);

}  // namespace trainopt
