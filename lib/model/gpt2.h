// GPT-2 (Radford et al. 2019), with Hugging Face's parameter names.
#pragma once

#include "model/builder.h"
#include "model/config.h"

namespace trainopt {

/// For int64 tokens [batch, tokens], at most `context` of them in [0, vocabulary): the logits of each next token
/// [batch, tokens, vocabulary], or the loss of ForwardContext::target. The last layer's weight is that of the
/// embedding. In files, names may lack "transformer.", buffers of causal masks are left out, and the last layer's
/// weight may be there too.
void build_gpt2(Builder& builder, const ModelConfig& config, const InputShape& input);

}  // namespace trainopt
