// The implementations of attention that libtorch may use, without libtorch's headers: recipes name them.
#pragma once

namespace trainopt {

/// Which one at::scaled_dot_product_attention uses. automatic: libtorch's choice among those that support the tensors.
/// math: one operation after the other. The others: this one, or math where it does not support the tensors.
enum class AttentionKernel { automatic, math, flash, efficient, cudnn };

}  // namespace trainopt
