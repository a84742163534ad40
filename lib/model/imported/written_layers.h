// Finds layers that a program writes out as several operations, or in another form than the slots': GELU, attention,
// and linear layers whose weight is transposed.
#pragma once

#include "model/imported/layer_view.h"

#include <string>
#include <string_view>

namespace trainopt {

/// What is returned for an operation that belongs to no such layer.
inline constexpr std::string_view kOtherLayer = "other";

// Each puts a layer's node in place of the nodes from `at` on, and returns an empty text, or why it does not ("they
// have a mask").

/// addmm(bias, input, weight), such as Hugging Face's Conv1D, with what folds its input's dimensions.
std::string linear_of_addmm(LayerView& view, size_t at);
/// GELU of operations by element around tanh or erf, which is at `at`. They are recognised by what they compute.
std::string written_gelu(LayerView& view, size_t at);
/// scaled_dot_product_attention(query, key, value).
std::string attention(LayerView& view, size_t at);
/// Products and softmax, which is at `at`.
std::string written_attention(LayerView& view, size_t at);

}  // namespace trainopt
