// Creates a batch source from a description of the data.
#include "base/counted.h"
#include "base/error.h"
#include "base/units.h"
#include "data/batch_source.h"
#include "data/device_dataset_batches.h"
#include "data/stream_order.h"
#include "data/text/text_dataset.h"
#include "device/device.h"

#include <algorithm>

namespace trainopt {
namespace {

TransformSplit split(const DataSpec& data, const LoaderSettings& settings) {
  if (data.device_dataset) {
    if (const auto refusal = device_dataset_refusal(data.transforms))
      throw UserError(fmt::format("data.cache: device is not possible: {}", *refusal));
    return split_for_device_dataset(data.transforms);
  }
  if (!settings.finish_on_device) return {data.transforms, {}};
  return split_transforms(data.transforms, settings.resize_on_device && !device_resize_refusal(data.transforms));
}

}  // namespace

BufferFormat buffer_format(const DataSpec& data, const LoaderSettings& settings, at::MemoryFormat memory_format) {
  TRAINOPT_CHECK(data.dataset != nullptr);
  if (data.is_text()) {
    TRAINOPT_CHECK(!settings.finish_on_device && !data.device_dataset);
    return {.tokens = largest_width(data)};
  }
  return {.size = output_size(Pipeline(split(data, settings).host), *data.images()),
          .as_uint8 = settings.finish_on_device || data.device_dataset,
          .memory_format = memory_format};
}

namespace {

/// Otherwise each sample would read its row group again.
void require_runs_fit(const DataSpec& data, int64_t memory_limit) {
  const auto runs = data.dataset->runs();
  if (runs.empty()) return;
  const int64_t own = data.shuffle ? (data.partitions + data.ranks - 1) / data.ranks : 1,
                mean = std::max<int64_t>(1, data.samples() / static_cast<int64_t>(runs.size())),
                window =
                    StreamLayout{.partitions = data.partitions, .window = data.shuffle_window}.window_of_partition();
  const int64_t at_once =
      std::min(data.shuffle ? own * ((window + mean - 1) / mean + 1) : int64_t{1}, static_cast<int64_t>(runs.size()));
  if (const int64_t bytes = at_once * data.dataset->run_bytes(); bytes > memory_limit)
    throw UserError(
        fmt::format("the row groups that are in use at once must fit into data.memory_limit; raise it, lower "
                    "data.shuffle_window or data.partitions, or write the files with smaller row groups: {} take about "
                    "{}, the limit is {}",
                    counted(at_once, "row group"), human_bytes(static_cast<double>(bytes)),
                    human_bytes(static_cast<double>(memory_limit))));
}

std::unique_ptr<Loader> loader_of(const DataSpec& data, LoaderSettings settings, const BatchRequest& request) {
  require_runs_fit(data, settings.memory_limit);
  const BufferFormat format = buffer_format(data, settings, request.format.memory_format);
  settings.pin_memory = settings.pin_memory && cuda_available();
  BadSamplePolicy policy = data.bad_samples;
  policy.one_size = data.device_dataset != nullptr;
  const Sampler sampler = data.sampler();
  const BatchSchedule schedule = data.schedule();
  auto samples = std::make_shared<SampleLoader>(data.dataset, Pipeline(split(data, settings).host), sampler, data.seed,
                                                policy, request.refused);
  std::optional<TokenCounter> counter;
  if (data.is_text()) counter.emplace(data.text(), sampler, schedule, data.padding);
  return std::make_unique<Loader>(std::move(samples), schedule, settings, format, request.steps, std::move(counter));
}

/// A loader of one epoch in index order, as uint8, without the transforms that differ between epochs.
std::unique_ptr<Loader> loader_once(DataSpec data, LoaderSettings settings, const std::vector<RefusedSample>& refused) {
  data.shuffle = data.drop_last = settings.pin_memory = settings.persistent_workers = false;
  data.ranks = data.accumulation = 1, data.rank = 0;  // every rank stores all samples
  const BufferFormat format = buffer_format(data, settings, at::MemoryFormat::Contiguous);
  // A loader needs memory for at least two batches.
  const int64_t fitting = settings.memory_limit / (2 * batch_bytes(format, 1));
  data.batch_size = std::clamp<int64_t>(fitting, 1, data.batch_size);
  return loader_of(data, settings, {.steps = {.end = data.schedule().steps_per_epoch()}, .refused = refused});
}

std::unique_ptr<BatchSource> device_dataset_batches(const DataSpec& data, const LoaderSettings& settings,
                                                    const BatchRequest& request) {
  const auto device = with_index(request.device);
  const ImageSize size = buffer_format(data, settings, request.format.memory_format).size;
  if (device.is_cpu())
    if (const auto reason = why_too_large(size, data.samples(), settings.memory_limit, "data.memory_limit"))
      throw UserError(*reason);
  const DeviceDatasetBatches::Order order{.schedule = data.schedule(),
                                          .sampler = data.sampler(),
                                          .keys = SampleKeys(data.seed),
                                          .first_step = request.steps.first};
  DeviceTransforms transforms(split(data, settings), size, data.seed, device, request.format);
  return std::make_unique<DeviceDatasetBatches>(
      data.device_dataset, [=, refused = request.refused] { return loader_once(data, settings, refused); }, order,
      device, std::move(transforms), request.refused);
}

}  // namespace

std::unique_ptr<Loader> make_loader(const DataSpec& data, const LoaderSettings& settings, const BatchRequest& request) {
  TRAINOPT_CHECK(!data.device_dataset);
  return loader_of(data, settings, request);
}

std::unique_ptr<BatchSource> make_batches(const DataSpec& data, const LoaderSettings& settings,
                                          const BatchRequest& request) {
  if (!data.dataset)
    return std::make_unique<SyntheticBatches>(data, request.format.memory_format, request.device, request.steps.first);
  if (data.device_dataset) return device_dataset_batches(data, settings, request);
  auto loader = make_loader(data, settings, request);
  std::optional<DeviceTransforms> transforms;
  if (settings.finish_on_device)
    transforms.emplace(split(data, settings), loader->format().size, data.seed, with_index(request.device),
                       request.format);
  return std::make_unique<LoadedBatches>(std::move(loader), request.device,
                                         settings.non_blocking && settings.pin_memory, std::move(transforms),
                                         data.files);
}

}  // namespace trainopt
