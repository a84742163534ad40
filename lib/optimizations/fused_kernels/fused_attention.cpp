#include "optimizations/fused_kernels/fused_attention.h"

#include "device/backend_settings.h"
#include "kernels/attention/autograd.h"

#include <ATen/Parallel.h>

namespace trainopt::fused_kernels {
namespace {

class FusedAttentionOperations : public PlainAttentionOperations {
 public:
  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const AttentionOptions& options, const ForwardContext& context) const override {
    const bool drops = context.training && options.dropout > 0,
               amx_helps = query.scalar_type() == at::kBFloat16 && __builtin_cpu_supports("amx-bf16"),
               too_few = query.size(0) * query.size(1) < at::get_num_threads();
    if (drops || amx_helps || too_few || current_attention_kernel() != AttentionKernel::automatic)
      return PlainAttentionOperations::attention(query, key, value, options, context);
    return kernels::attention({query, key, value, options.causal}, kernels::cpu_attention_kernels());
  }
};

}  // namespace

std::unique_ptr<AttentionOperations> make_fused_attention() { return std::make_unique<FusedAttentionOperations>(); }

}  // namespace trainopt::fused_kernels
