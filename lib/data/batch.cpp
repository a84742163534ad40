#include "data/batch.h"

namespace trainopt {

Batch make_batch(const MicroBatch& where, at::Tensor input, at::Tensor target, std::vector<int64_t> sample_ids,
                 TokenCounts counts) {
  Batch batch;
  batch.input = std::move(input);
  batch.target = std::move(target);
  batch.sample_ids = std::move(sample_ids);
  batch.items = where.items;
  batch.step_items = where.step_items;
  batch.weight = counts.step > 0 ? counts.weight() : where.weight();
  batch.target_tokens = std::move(counts.of_samples);
  batch.tokens = counts.here;
  batch.step_tokens = counts.step;
  batch.is_first = where.is_first();
  batch.is_last = where.is_last;
  batch.epoch = where.epoch;
  batch.step = where.step;
  batch.micro = where.micro;
  return batch;
}

}  // namespace trainopt
