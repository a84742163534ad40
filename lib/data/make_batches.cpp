// From the recipe's data section to a source of batches.
#include "base/error.h"
#include "data/batch_source.h"
#include "device/device.h"

#include <algorithm>

namespace trainopt {
namespace {

TransformSplit split(const DataConfig& data, const BatchesOptions& options) {
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
  throw UserError(fmt::format("cannot tell the size of the images, none of the first can be read; {}", problem), ExitCode::data);
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

SlotFormat slot_format(const DataConfig& data, const Dataset& dataset, const BatchesOptions& options) {
  return {.size = size_after(Pipeline(split(data, options).host), dataset),
          .as_uint8 = options.device_preprocess || options.device_resize,
          .memory_format = options.memory_format};
}

std::unique_ptr<Loader> make_loader(const DataConfig& data, std::shared_ptr<const Dataset> dataset,
                                    const BatchesOptions& options) {
  TRAINOPT_CHECK(dataset != nullptr);
  const LoaderOptions loader{.num_workers = data.num_workers,
                             .prefetch_factor = data.prefetch_factor,
                             .persistent_workers = data.persistent_workers,
                             .pin_memory = data.pin_memory && cuda_available(),
                             .memory_limit = data.memory_limit.count,
                             .format = slot_format(data, *dataset, options),
                             .first_step = options.first_step,
                             .end_step = options.end_step};
  const BadSamplePolicy policy{.substitute = data.on_bad_sample == OnBadSample::substitute, .budget = data.max_bad_samples};
  const int64_t size = dataset->size();
  auto samples = std::make_shared<SampleLoader>(std::move(dataset), Pipeline(split(data, options).host),
                                                Sampler(size, options.seed, data.shuffle), options.seed, policy, options.refused);
  return std::make_unique<Loader>(std::move(samples), make_schedule(data, size, options), loader);
}

std::unique_ptr<BatchSource> make_batches(const DataConfig& data, std::shared_ptr<const Dataset> dataset,
                                          const BatchesOptions& options) {
  if (data.dataset == DatasetKind::synthetic) {
    const SyntheticBatches::Images images{
        .side = data.image_size, .num_classes = options.num_classes, .memory_format = options.memory_format};
    return std::make_unique<SyntheticBatches>(make_schedule(data, data.size, options), images, options.seed, options.device,
                                              options.first_step);
  }
  auto loader = make_loader(data, std::move(dataset), options);
  std::optional<DevicePreprocess> preprocess;
  if (options.device_preprocess || options.device_resize)
    preprocess.emplace(split(data, options).device, loader->format().size, with_index(options.device), options.memory_format);
  return std::make_unique<LoadedBatches>(std::move(loader), options.device, data.non_blocking && data.pin_memory,
                                         std::move(preprocess));
}

}  // namespace trainopt
