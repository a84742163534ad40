#include "compare/ceiling_parts.h"

#include "device/tensor.h"

namespace trainopt {

Batch ReplayedBatches::next() {
  if (source_) {
    Batch batch = source_->next();
    for (const auto field : kBatchFields)  // on the CPU they share the loader's memory
      if (at::Tensor& tensor = batch.*field; tensor.defined()) tensor = tensor.clone();
    step_.push_back(batch);
    if (batch.is_last) source_.reset();
    return batch;
  }
  return step_[next_++ % step_.size()];
}

}  // namespace trainopt
