// The operations that a model's units call. Each kind is an interface with a plain implementation that an optimization
// may replace; parameter names do not change.
#pragma once

#include "model/attention_operations.h"
#include "model/batch_norm_operations.h"
#include "model/convolution_operations.h"
#include "model/gelu_operations.h"
#include "model/head_operations.h"
#include "model/language_head_operations.h"
#include "model/layer_norm_operations.h"
#include "model/linear_operations.h"

#include <memory>

namespace trainopt {

/// Plain by default; none is null.
struct Operations {
  std::shared_ptr<const LinearOperations> linear = std::make_shared<PlainLinearOperations>();
  std::shared_ptr<const ConvolutionOperations> convolution = std::make_shared<PlainConvolutionOperations>();
  std::shared_ptr<const BatchNormOperations> batch_norm = std::make_shared<PlainBatchNormOperations>();
  std::shared_ptr<const HeadOperations> head = std::make_shared<PlainHeadOperations>();
  std::shared_ptr<const AttentionOperations> attention = std::make_shared<PlainAttentionOperations>();
  std::shared_ptr<const LayerNormOperations> layer_norm = std::make_shared<PlainLayerNormOperations>();
  std::shared_ptr<const GeluOperations> gelu = std::make_shared<PlainGeluOperations>();
  std::shared_ptr<const LanguageHeadOperations> language_head = std::make_shared<PlainLanguageHeadOperations>();
};

}  // namespace trainopt
