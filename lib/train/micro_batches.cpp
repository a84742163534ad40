#include "train/micro_batches.h"

#include <algorithm>

namespace trainopt {

std::vector<Batch> cut(const Batch& batch, int64_t pieces) {
  if (pieces == 1) return {batch};
  const int64_t size = std::max<int64_t>((batch.items + pieces - 1) / pieces, 1);
  std::vector<Batch> parts;
  for (int64_t first = 0; first == 0 || first < batch.items; first += size) {
    const int64_t items = std::min(size, batch.items - first);
    Batch part = batch;
    for (auto& [name, tensor] : part.tensors) tensor = tensor.narrow(0, first, items);
    part.sample_ids.assign(batch.sample_ids.begin() + first, batch.sample_ids.begin() + first + items);
    part.items = items;
    part.weight = static_cast<double>(items) / static_cast<double>(batch.step_items);
    part.is_first = batch.is_first && first == 0;
    part.is_last = batch.is_last && first + items == batch.items;
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace trainopt
