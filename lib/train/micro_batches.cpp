#include "train/micro_batches.h"

#include "train/plan.h"

#include <algorithm>
#include <numeric>

namespace trainopt {
namespace {

template <class Value>
void keep(std::vector<Value>& values, int64_t first, int64_t items) {
  if (values.empty()) return;  // the batch has only shapes
  values = {values.begin() + first, values.begin() + first + items};
}

/// Whether ranks exchange something in every forward or backward, and not only in a step's last one.
bool exchanges_in_each(const ParallelConfig& parallel) {
  switch (parallel.sharding_strategy) {
    case ShardingStrategy::none:
    case ShardingStrategy::zero1:
      return parallel.sync_batch_norm;
    case ShardingStrategy::zero2:
    case ShardingStrategy::zero3:
    case ShardingStrategy::hybrid:
      return true;
  }
  return true;
}

/// The last rank's share of the micro-batch, which no other rank's is smaller than.
int64_t fewest_items(const Batch& batch, const DataPlan& data) {
  BatchSchedule::Shape shape = data.schedule().shape();
  shape.rank = shape.ranks - 1;
  return BatchSchedule(shape).at(batch.step, batch.micro).items;
}

}  // namespace

int64_t pieces_of(const Batch& batch, const Plan& plan, int64_t pieces, int64_t min_items) {
  const bool together = plan.data.ranks > 1 && exchanges_in_each(plan.parallel);
  const int64_t items = together ? fewest_items(batch, plan.data) : batch.items;
  return std::max<int64_t>(std::min(pieces, items / min_items), 1);
}

std::vector<Batch> split_batch(const Batch& batch, int64_t pieces, int64_t min_items) {
  const int64_t count = std::max<int64_t>(std::min(pieces, batch.items / min_items), 1);
  if (count == 1) return {batch};
  std::vector<Batch> parts;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = i * batch.items / count, items = (i + 1) * batch.items / count - first;
    Batch part = batch;
    for (const auto field : kBatchFields)
      if (at::Tensor& tensor = part.*field; tensor.defined()) tensor = tensor.narrow(0, first, items);
    keep(part.sample_ids, first, items);
    part.items = items;
    if (batch.step_tokens == 0) {
      part.weight = static_cast<double>(items) / static_cast<double>(batch.step_items);
    } else {
      keep(part.target_tokens, first, items);
      part.tokens = std::accumulate(part.target_tokens.begin(), part.target_tokens.end(), int64_t{0});
      part.weight = static_cast<double>(part.tokens) / static_cast<double>(batch.step_tokens);
    }
    part.is_first = batch.is_first && first == 0;
    part.is_last = batch.is_last && first + items == batch.items;
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace trainopt
