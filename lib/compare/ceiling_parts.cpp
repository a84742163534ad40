#include "compare/ceiling_parts.h"

#include <ATen/ATen.h>

namespace trainopt {

Batch ReplayedBatches::next() {
  if (source_) {
    Batch batch = source_->next();
    for (auto& [name, tensor] : batch.tensors) tensor = tensor.clone();  // on the CPU they are the loader's memory
    step_.push_back(batch);
    if (batch.is_last) source_.reset();
    return batch;
  }
  return step_[given_++ % step_.size()];
}

}  // namespace trainopt
