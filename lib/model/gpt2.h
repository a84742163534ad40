// GPT-2 (Radford et al. 2019), with Hugging Face's parameter names.
#pragma once

#include "model/builder.h"
#include "model/config.h"

namespace trainopt {

/// For int64 tokens [batch, tokens], at most `context` of them in [0, vocabulary): the logits of each next token
/// [batch, tokens, vocabulary], or the loss of ForwardContext::target. The last layer's weight is that of the
/// embedding. Of a file's tensors, those without "transformer." get it, and buffers of causal masks are left out, as is
/// a last layer's weight that equals the embedding's.
void build_gpt2(Builder& builder, const ModelConfig& config);

}  // namespace trainopt
