// When rules apply.
#pragma once

#include "advice/rules.h"
#include "recipe/make_plan.h"

namespace trainopt::conditions {

inline bool on_cpu(const Situation& s) { return s.plan.device.is_cpu(); }
inline bool has_gpu(const Situation& s) { return !on_cpu(s); }
inline bool has_ranks(const Situation& s) { return s.plan.position.ranks > 1; }
inline bool has_loader(const Situation& s) { return s.plan.data.dataset && !s.plan.data.device_dataset; }
inline bool loads_without_disk_cache(const Situation& s) {
  return has_loader(s) && s.recipe.data.cache.kind != CacheKind::disk;
}
inline bool has_threads(const Situation& s) { return has_loader(s) && s.plan.loader.num_workers > 0; }
/// Not yet on a disk, nor in memory anyway.
inline bool has_memory_cache(const Situation& s) {
  const DataConfig& data = s.recipe.data;
  if (data.dataset == DatasetKind::image_folder) return true;
  return loads_without_disk_cache(s) && (data.dataset == DatasetKind::parquet || s.times.storage);
}
inline bool reads_files_of_images(const Situation& s) {
  const ImageDataset* const images = s.plan.data.images();
  return images && decodes_files(s.recipe.data.dataset) && !images->uniform_size();
}
inline bool convolves(const Situation& s) { return s.plan.model.layers.convolutions() > 0; }
/// Only zero3 exchanges more than plain data parallelism does: it gathers the weights once more.
inline bool gathers_twice(const Situation& s) { return s.recipe.parallel.sharding_strategy == ShardingStrategy::zero3; }
inline bool fills_memory(const Situation& s) { return s.memory_peak_pct.value_or(0) > 80; }

}  // namespace trainopt::conditions
