#include "train/sharded_model.h"

#include "train/plan.h"

namespace trainopt {

std::optional<c10::ScalarType> wire_type(const ParallelConfig& config) {
  if (!config.gradient_dtype || *config.gradient_dtype == WireType::float32)
    return std::nullopt;  // gradients are float32 already
  return c10::kBFloat16;
}

ShardedModel sharded_model(const Plan& plan, const ParallelConfig& config, const RankPosition& position) {
  return {.parameters = plan.stages.parameters,
          .bfloat16_parameters = plan.model.bfloat16_parameters,
          .states = plan.optimizer_states,
          .ranks = position.ranks,
          .local_ranks = position.local_ranks,
          .micro_batches = plan.data.accumulation,
          .wire_bytes_each = wire_type(config) ? 2 : 4,
          .late_updates = config.async_updates.staleness > 0};
}

}  // namespace trainopt
