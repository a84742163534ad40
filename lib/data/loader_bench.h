// Looking at the loader alone: how fast it is, and exactly what it delivers.
#pragma once

#include "data/batch_source.h"

#include <filesystem>
#include <functional>
#include <string>

namespace trainopt {

struct LoaderBenchOptions {
  int64_t warmup_batches = 2;
  int64_t batches = 50;  ///< the first limit reached ends the measurement; at least one batch is measured
  double seconds = 10;
};
struct LoaderBenchResult {
  int64_t batches = 0, samples = 0;
  double seconds = 0, samples_per_s = 0;
  double wait_pct = 0;          ///< of the time: the consumer blocked
  double workers_busy_pct = 0;  ///< of the workers' time (without workers: of the consumer's): loading samples
  double read_pct = 0;          ///< of the busy time: reading files; the rest decodes and transforms
  double sample_us = 0;         ///< busy time of one sample
  double ready_batches = 0;     ///< mean number of batches ready when one was asked for
  int64_t slots = 0, slot_bytes = 0;
  std::string verdict;  ///< one sentence: who waits for whom
};
/// Takes batches as fast as they come. `consume`: what else to do with each, such as a pause in place of a training
/// step.
LoaderBenchResult run_loader_bench(Loader& loader, const LoaderBenchOptions& options,
                                   const std::function<void(const HostBatch&)>& consume = nullptr);

/// The same for batches that no loader stands behind (data.cache: device): the calling thread draws them and `device`
/// finishes them. Reading the data set belongs to the warm-up, of which there is at least one batch.
LoaderBenchResult run_resident_bench(BatchSource& batches, c10::Device device, const LoaderBenchOptions& options);

/// The first `steps` steps as the model sees them, as safetensors: step-00000001.input float32 [items, 3, h, w],
/// .target and .sample_id int64 [items], micro-batches one behind the other. Everything is held in memory until it is
/// written. Throws UserError.
void export_steps(BatchSource& batches, int64_t steps, const std::filesystem::path& path);

}  // namespace trainopt
