#include "data/loader_bench.h"

#include "base/error.h"
#include "device/device.h"

#include <algorithm>

namespace trainopt {
namespace {

std::string verdict(const LoaderBenchResult& result, int64_t num_workers) {
  const std::string work = result.read_pct > 50 ? "reading files" : "decoding and transforming";
  if (num_workers == 0) return fmt::format("no workers: the training thread loads the batches itself, mostly {}", work);
  if (result.wait_pct < 20) return "the workers wait: batches are ready before the consumer needs them";
  if (result.workers_busy_pct > 80)
    return fmt::format("the consumer waits: all {} workers are busy, mostly {}", num_workers, work);
  return fmt::format(
      "the consumer waits although the workers are busy only {:.0f} % of the time: prefetching more batches "
      "(data.prefetch_factor, data.memory_limit) may help",
      result.workers_busy_pct);
}

}  // namespace

LoaderBenchResult run_loader_bench(Loader& loader, const LoaderBenchOptions& options,
                                   const std::function<void(const HostBatch&)>& consume) {
  const auto take = [&] {
    const HostBatch batch = loader.next();
    if (consume) consume(batch);
    loader.release(batch);
    return batch.where.items;
  };
  for (int64_t i = 0; i < options.warmup_batches; ++i) take();
  loader.take_stats();
  LoaderBenchResult result;
  const auto begin = Clock::now();
  do {
    result.ready_batches += static_cast<double>(loader.ready_batches());
    result.samples += take();
    ++result.batches;
  } while (result.batches < options.batches && seconds_since(begin) < options.seconds);
  result.seconds = seconds_since(begin);
  const LoaderStats stats = loader.take_stats();
  const auto workers = static_cast<double>(std::max<int64_t>(loader.num_workers(), 1));
  result.samples_per_s = static_cast<double>(result.samples) / result.seconds;
  result.ready_batches /= static_cast<double>(result.batches);
  result.wait_pct = 100 * stats.wait_ms / stats.elapsed_ms;
  result.workers_busy_pct = 100 * stats.busy_ms / (stats.elapsed_ms * workers);
  result.read_pct = stats.busy_ms > 0 ? 100 * stats.read_ms / stats.busy_ms : 0;
  result.sample_us = stats.samples > 0 ? 1e3 * stats.busy_ms / static_cast<double>(stats.samples) : 0;
  result.slots = loader.slots();
  result.slot_bytes = loader.slot_bytes();
  result.verdict = verdict(result, loader.num_workers());
  return result;
}

LoaderBenchResult run_resident_bench(BatchSource& batches, c10::Device device, const LoaderBenchOptions& options) {
  for (int64_t i = 0; i < std::max<int64_t>(1, options.warmup_batches); ++i) batches.next();
  synchronize(device);
  LoaderBenchResult result;
  const auto begin = Clock::now();
  do {
    result.samples += batches.next().items;
    ++result.batches;
  } while (result.batches < options.batches && seconds_since(begin) < options.seconds);
  synchronize(device);
  result.seconds = seconds_since(begin);
  result.samples_per_s = static_cast<double>(result.samples) / result.seconds;
  result.sample_us = 1e6 * result.seconds / static_cast<double>(result.samples);
  result.wait_pct = 100;
  result.verdict = "no loader: batches are drawn by index from a data set on the device";
  return result;
}

}  // namespace trainopt
