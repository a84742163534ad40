#include "train/operation_slots.h"

namespace trainopt {
namespace {

template <class Plain>
auto made(const BuildContext&) {
  return std::make_unique<Plain>();
}

}  // namespace

OperationSlots::OperationSlots()
    : convolution("convolution", "libtorch's", made<PlainConvolutionOperations>),
      batch_norm("batch-norm", "libtorch's", made<PlainBatchNormOperations>),
      head("head", "average pool and linear layer, one after the other", made<PlainHeadOperations>),
      linear("linear layer", "libtorch's", made<PlainLinearOperations>),
      attention("attention", "libtorch's choice", made<PlainAttentionOperations>),
      layer_norm("layer norm", "libtorch's", made<PlainLayerNormOperations>),
      gelu("GELU", "libtorch's, after the linear layer", made<PlainGeluOperations>),
      language_head("language head", "all logits, then their cross entropy", made<PlainLanguageHeadOperations>) {}

Operations OperationSlots::build(const BuildContext& context) const {
  return {.linear = linear.build(context),
          .convolution = convolution.build(context),
          .batch_norm = batch_norm.build(context),
          .head = head.build(context),
          .attention = attention.build(context),
          .layer_norm = layer_norm.build(context),
          .gelu = gelu.build(context),
          .language_head = language_head.build(context)};
}

}  // namespace trainopt
