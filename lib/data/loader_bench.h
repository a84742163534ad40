// Measures the loader alone, and exports exactly what it delivers.
#pragma once

#include "base/json.h"
#include "data/batch_source.h"
#include "data/loader.h"

#include <filesystem>
#include <functional>
#include <string>

namespace trainopt {

// Where a loader's time went, in percentages.

/// All zeros if no sample was loaded.
struct LoaderShares {
  double workers_busy_pct = 0;  ///< share of the workers' time (without workers: the caller's) spent loading samples
  double read_pct = 0, decode_pct = 0, transform_pct = 0;  ///< shares of the busy time
  double other_pct = 0;  ///< the rest of the busy time: choosing the sample, drawing fake images, caching decoded ones
  double sample_us = 0;  ///< busy time per sample

  static LoaderShares of(const LoaderWork& work);
};

/// An object with these names.
Json to_json(const LoaderShares& shares);

struct LoaderBenchOptions {
  int64_t warmup_batches = 2;
  int64_t batches = 50;  ///< measurement ends at the first limit reached, after at least one batch
  double seconds = 10;
};
struct LoaderBenchResult {
  int64_t batches = 0, samples = 0;
  int64_t tokens = 0;  ///< target tokens; 0 for images
  double seconds = 0, samples_per_s = 0, tokens_per_s = 0;
  double wait_pct = 0;                 ///< share of the time in which the consumer waited
  std::optional<LoaderShares> shares;  ///< null without a loader
  double ready_batches = 0;            ///< mean number of batches ready when next() is called
  int64_t slots = 0, slot_bytes = 0;
  std::string verdict;  ///< one sentence: which side waits for the other
};
/// Takes batches as fast as they arrive. `consume` is called with each, for example to pause in place of a training
/// step.
LoaderBenchResult run_loader_bench(Loader& loader, const LoaderBenchOptions& options,
                                   const std::function<void(const HostBatch&)>& consume = nullptr);

/// run_loader_bench() for batches that do not come from a loader (data.cache: device): the calling thread draws them
/// and `device` finishes them. The warm-up is at least one batch and includes reading the data set.
LoaderBenchResult run_resident_bench(BatchSource& batches, c10::Device device, const LoaderBenchOptions& options);

/// Writes the first `steps` steps, as the model receives them, to a safetensors file: step-00000001.input float32
/// [items, 3, h, w], .target and .sample_id int64 [items], with the micro-batches concatenated; of text, .input and
/// .target int64 [items, tokens], as wide as the step's widest micro-batch. Everything is held in memory until it is
/// written. Throws UserError.
void export_steps(BatchSource& batches, int64_t steps, const std::filesystem::path& path);

}  // namespace trainopt
