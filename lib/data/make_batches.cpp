// From the recipe's data section to a source of batches.
#include "base/error.h"
#include "data/batch_source.h"
#include "data/device_dataset_batches.h"
#include "device/device.h"

#include <algorithm>

namespace trainopt {
namespace {

TransformSplit split(const DataConfig& data, const BatchesOptions& options) {
  if (data.cache == CacheKind::device) {
    if (const auto refusal = device_cache_refusal(data.transforms))
      throw UserError(fmt::format("data.cache: device is not possible: {}", *refusal));
    return split_for_device_cache(data.transforms);
  }
  if (!options.device_preprocess && !options.device_resize) return {data.transforms, {}};
  if (options.device_resize)
    if (const auto refusal = device_resize_refusal(data.transforms))
      throw UserError(fmt::format("optimizations.device_preprocess.resize is not possible: {}", *refusal));
  return split_transforms(data.transforms, options.device_resize);
}

/// Where sizes may differ and the transforms do not fix them, the first readable image says what the others must be.
ImageSize size_after(const Pipeline& pipeline, const Dataset& dataset) {
  if (const auto size = pipeline.output_size(dataset.uniform_size())) return *size;
  LoadScratch scratch;
  std::string problem;
  for (int64_t sample = 0; sample < std::min<int64_t>(dataset.size(), 100); ++sample) {
    try {
      return pipeline.output_size(dataset.size_of(sample, scratch)).value();
    } catch (const BadSample& bad) {
      if (problem.empty()) problem = fmt::format("{}: {}", dataset.name_of(sample), bad.what());
    }
  }
  throw UserError(fmt::format("cannot tell the size of the images, none of the first can be read; {}", problem),
                  ExitCode::data);
}

}  // namespace

BatchSchedule make_schedule(const DataConfig& data, int64_t samples, const BatchesOptions& options) {
  return BatchSchedule({.samples = samples,
                        .batch_size = data.batch_size,
                        .ranks = options.ranks,
                        .rank = options.rank,
                        .accumulation = options.accumulation,
                        .drop_last = data.drop_last});
}

BufferFormat buffer_format(const DataConfig& data, const Dataset& dataset, const BatchesOptions& options) {
  return {.size = size_after(Pipeline(split(data, options).host), dataset),
          .as_uint8 = options.device_preprocess || options.device_resize || data.cache == CacheKind::device,
          .memory_format = options.memory_format};
}

namespace {

std::unique_ptr<Loader> loader_of(const DataConfig& data, std::shared_ptr<const Dataset> dataset,
                                  const BatchesOptions& options) {
  TRAINOPT_CHECK(dataset != nullptr);
  const LoaderOptions loader{.num_workers = data.num_workers,
                             .prefetch_factor = data.prefetch_factor,
                             .persistent_workers = data.persistent_workers,
                             .pin_memory = data.pin_memory && cuda_available(),
                             .memory_limit = data.memory_limit.count,
                             .format = buffer_format(data, *dataset, options),
                             .first_step = options.first_step,
                             .end_step = options.end_step};
  const BadSamplePolicy policy{.substitute = data.on_bad_sample == OnBadSample::substitute,
                               .budget = data.max_bad_samples,
                               .one_size = data.cache == CacheKind::device};
  const int64_t size = dataset->size();
  auto samples =
      std::make_shared<SampleLoader>(std::move(dataset), Pipeline(split(data, options).host),
                                     Sampler(size, options.seed, data.shuffle), options.seed, policy, options.refused);
  return std::make_unique<Loader>(std::move(samples), make_schedule(data, size, options), loader);
}

/// One epoch in index order, as uint8 and without what differs from epoch to epoch.
std::unique_ptr<Loader> loader_once(DataConfig data, std::shared_ptr<const Dataset> dataset,
                                    const BatchesOptions& options) {
  data.shuffle = data.drop_last = data.pin_memory = data.persistent_workers = false;
  // Two batches are the least that a loader needs.
  const int64_t fitting = data.memory_limit.count / (2 * batch_bytes(buffer_format(data, *dataset, options), 1));
  data.batch_size = std::clamp<int64_t>(fitting, 1, data.batch_size);
  BatchesOptions alone;  // every rank holds all samples
  alone.seed = options.seed;
  alone.refused = options.refused;
  alone.end_step = make_schedule(data, dataset->size(), alone).steps_per_epoch();
  return loader_of(data, std::move(dataset), alone);
}

std::unique_ptr<BatchSource> device_dataset_batches(const DataConfig& data, std::shared_ptr<const Dataset> dataset,
                                                    const BatchesOptions& options) {
  TRAINOPT_CHECK(dataset != nullptr);
  const auto device = with_index(options.device);
  const ImageSize size = buffer_format(data, *dataset, options).size;
  if (device.is_cpu())
    if (const auto reason = why_no_room(size, dataset->size(), data.memory_limit.count, "data.memory_limit"))
      throw UserError(*reason);
  const DeviceDatasetBatches::Order order{.schedule = make_schedule(data, dataset->size(), options),
                                          .sampler = Sampler(dataset->size(), options.seed, data.shuffle),
                                          .keys = SampleKeys(options.seed),
                                          .first_step = options.first_step};
  DevicePreprocess preprocess(split(data, options), size, options.seed, device,
                              {options.compute_type, options.memory_format});
  return std::make_unique<DeviceDatasetBatches>(
      options.resident ? options.resident : std::make_shared<DeviceDataset>(),
      [=, dataset = std::move(dataset)] { return loader_once(data, dataset, options); }, order, device,
      std::move(preprocess), options.refused);
}

}  // namespace

std::unique_ptr<Loader> make_loader(const DataConfig& data, std::shared_ptr<const Dataset> dataset,
                                    const BatchesOptions& options) {
  TRAINOPT_CHECK(data.cache != CacheKind::device);
  return loader_of(data, std::move(dataset), options);
}

std::unique_ptr<BatchSource> make_batches(const DataConfig& data, std::shared_ptr<const Dataset> dataset,
                                          const BatchesOptions& options) {
  if (data.dataset == DatasetKind::synthetic) {
    const SyntheticBatches::Images images{
        .side = data.image_size, .num_classes = options.num_classes, .memory_format = options.memory_format};
    return std::make_unique<SyntheticBatches>(make_schedule(data, data.size, options), images, options.seed,
                                              options.device, options.first_step);
  }
  if (data.cache == CacheKind::device) return device_dataset_batches(data, std::move(dataset), options);
  auto loader = make_loader(data, std::move(dataset), options);
  std::optional<DevicePreprocess> preprocess;
  if (options.device_preprocess || options.device_resize)
    preprocess.emplace(split(data, options), loader->format().size, options.seed, with_index(options.device),
                       DevicePreprocess::Result{options.compute_type, options.memory_format});
  return std::make_unique<LoadedBatches>(std::move(loader), options.device, data.non_blocking && data.pin_memory,
                                         std::move(preprocess));
}

}  // namespace trainopt
