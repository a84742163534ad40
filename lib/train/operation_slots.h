// The slots for a model's operations.
#pragma once

#include "model/operations.h"
#include "train/slot.h"

namespace trainopt {

/// One slot for each kind of operation.
struct OperationSlots {
  OperationSlots();

  Slot<ConvolutionOperations> convolution;
  Slot<BatchNormOperations> batch_norm;
  Slot<HeadOperations> head;
  Slot<LinearOperations> linear;
  Slot<AttentionOperations> attention;
  Slot<LayerNormOperations> layer_norm;
  Slot<GeluOperations> gelu;
  Slot<LanguageHeadOperations> language_head;

  /// Builds what is in the slots.
  Operations build(const BuildContext& context) const;

  /// Calls `visit` with every slot.
  template <class Visit>
  void each(const Visit& visit) const {
    visit(convolution);
    visit(batch_norm);
    visit(head);
    visit(linear);
    visit(attention);
    visit(layer_norm);
    visit(gelu);
    visit(language_head);
  }
};

}  // namespace trainopt
