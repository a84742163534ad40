#include "data/loader_bench.h"

#include "base/error.h"
#include "device/device.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace trainopt {
namespace {

std::string most_of(const LoaderShares& shares) {
  const std::pair<double, const char*> stages[] = {{shares.read_pct, "reading files"},
                                                   {shares.decode_pct, "decoding"},
                                                   {shares.transform_pct, "transforming"},
                                                   {shares.other_pct, "other than reading, decoding and transforming"}};
  return std::max_element(std::begin(stages), std::end(stages))->second;
}

std::string verdict(const LoaderBenchResult& result, const LoaderShares& shares, int64_t num_workers) {
  const std::string work = most_of(shares);
  if (num_workers == 0) return fmt::format("no workers: the training thread loads the batches itself, mostly {}", work);
  if (result.wait_pct < 20) return "the workers wait: batches are ready before the consumer needs them";
  if (shares.workers_busy_pct > 80)
    return fmt::format("the consumer waits: all {} workers are busy, mostly {}", num_workers, work);
  return fmt::format(
      "the consumer waits although the workers are busy only {:.0f} % of the time: prefetching more batches "
      "(data.prefetch_factor, data.memory_limit) may help",
      shares.workers_busy_pct);
}

}  // namespace

LoaderBenchResult run_loader_bench(Loader& loader, const LoaderBenchOptions& options,
                                   const std::function<void(const HostBatch&)>& consume) {
  LoaderBenchResult result;
  const auto take = [&] {
    const HostBatch batch = loader.next();
    if (consume) consume(batch);
    loader.release(batch);
    result.samples += batch.where.items;
    result.tokens += batch.counts.here;
  };
  for (int64_t i = 0; i < options.warmup_batches; ++i) take();
  loader.take_wait_ms();
  loader.take_work();
  result = {};
  const auto begin = Clock::now();
  do {
    result.ready_batches += static_cast<double>(loader.ready_batches());
    take();
    ++result.batches;
  } while (result.batches < options.batches && seconds_since(begin) < options.seconds);
  result.seconds = seconds_since(begin);
  result.shares = LoaderShares::of(loader.take_work());
  result.samples_per_s = static_cast<double>(result.samples) / result.seconds;
  result.tokens_per_s = static_cast<double>(result.tokens) / result.seconds;
  result.ready_batches /= static_cast<double>(result.batches);
  result.wait_pct = 1e-1 * loader.take_wait_ms() / result.seconds;
  result.slots = loader.slots();
  result.slot_bytes = loader.slot_bytes();
  result.verdict = verdict(result, *result.shares, loader.num_workers());
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
  result.wait_pct = 100;
  result.verdict = "no loader: batches are drawn by index from a data set on the device";
  return result;
}

LoaderShares LoaderShares::of(const LoaderWork& work) {
  if (work.samples == 0 || work.busy_ns <= 0) return {};
  const auto busy = static_cast<double>(work.busy_ns);
  const auto share = [&](int64_t part_ns) { return 100 * static_cast<double>(part_ns) / busy; };
  const auto& [read_ns, decode_ns, transform_ns] = work.stages;
  return {.workers_busy_pct = work.worker_ns > 0 ? 100 * busy / static_cast<double>(work.worker_ns) : 0,
          .read_pct = share(read_ns),
          .decode_pct = share(decode_ns),
          .transform_pct = share(transform_ns),
          .other_pct = share(work.busy_ns - read_ns - decode_ns - transform_ns),
          .sample_us = busy * 1e-3 / static_cast<double>(work.samples)};
}

Json to_json(const LoaderShares& shares) {
  return {
      {"workers_busy_pct", shares.workers_busy_pct}, {"read_pct", shares.read_pct},   {"decode_pct", shares.decode_pct},
      {"transform_pct", shares.transform_pct},       {"other_pct", shares.other_pct}, {"sample_us", shares.sample_us}};
}

}  // namespace trainopt
