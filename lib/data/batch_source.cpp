// Creates a batch source from a description of the data.
#include "data/batch_source.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/units.h"
#include "data/formats/text/text_dataset.h"
#include "data/on_device/device_dataset.h"
#include "data/stream_order.h"
#include "device/device.h"
#include "device/tensor.h"
#include "device/trace_range.h"

#include <algorithm>
#include <cstring>
#include <numeric>

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
  data.last_batch = LastBatch::keep;
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

namespace {

Batch describe(const HostBatch& host, at::Tensor input, at::Tensor target) {
  return make_batch(host.where, std::move(input), std::move(target), {host.sample_ids.begin(), host.sample_ids.end()},
                    host.counts);
}

}  // namespace

LoadedBatches::LoadedBatches(std::unique_ptr<Loader> loader, c10::Device device, bool non_blocking,
                             std::optional<DeviceTransforms> transforms, std::shared_ptr<const DataFiles> files)
    : loader_(std::move(loader)),
      files_(std::move(files)),
      device_(with_index(device)),
      transforms_(std::move(transforms)) {
  if (non_blocking && !device_.is_cpu()) copy_stream_ = Stream::side(device_);
}

Batch LoadedBatches::next() {
  Batch batch = device_.is_cpu() ? next_in_place() : copy_stream_ ? next_overlapped() : next_copied();
  if (transforms_) finish(batch);
  return batch;
}

/// Applies the device's part of the transforms.
void LoadedBatches::finish(Batch& batch) {
  const TraceRange range("loader::transforms");
  const at::Tensor placement =
      transforms_->make_placement({.epoch = batch.epoch, .samples = batch.sample_ids, .in_order = true});
  if (placement.defined() && !device_.is_cpu())
    stats_.bytes_copied += static_cast<int64_t>(placement.nbytes()),
        stats_.pinned_bytes_copied += static_cast<int64_t>(placement.nbytes());
  batch.input = (*transforms_)(batch.input, placement);
  stats_.finished_type = batch.input.scalar_type();
}

Batch LoadedBatches::next_in_place() {
  if (current_) loader_->release(*std::exchange(current_, std::nullopt));  // the caller is done with the previous batch
  current_ = loader_->next();
  // The loader wrote this memory without libtorch, which compares versions to notice changes.
  for (const auto& tensor : {current_->input, current_->target}) tensor.unsafeGetTensorImpl()->bump_version();
  count(delivered(*current_), false);
  return describe(*current_, current_->input, current_->target);
}

Batch LoadedBatches::next_copied() {
  const HostBatch host = loader_->next();
  const TraceRange range("copy");
  const Stream stream = Stream::current(device_);
  Event begun(device_, true), done(device_, true);
  begun.record(stream);  // after the work queued before, which the copy waits for
  Batch batch = describe(host, host.input.to(device_), host.target.to(device_));  // both block until the copy is done
  done.record(stream);
  const Delivered counts = delivered(host);
  timings_.push_back({std::move(begun), std::move(done), std::nullopt, counts.bytes});
  count(counts, true);
  loader_->release(host);
  return batch;
}

Batch LoadedBatches::next_overlapped() {
  Copy copy = prefetched_ ? *std::exchange(prefetched_, std::nullopt) : begin_copy(loader_->next());
  const Stream compute = Stream::current(device_);
  EventSpan wait(device_);
  wait.start.record(compute);
  copy.done.block(compute);
  wait.end.record(compute);
  // The memory belongs to the copy stream: the allocator must not reuse it for the next copy while the step still reads
  // it.
  for (const auto field : kBatchFields)
    if (const at::Tensor& tensor = copy.batch.*field; tensor.defined()) tensor.record_stream(compute.handle());
  timings_.push_back({std::move(copy.begun), std::move(copy.done), std::move(wait), copy.delivered.bytes});
  count(copy.delivered, true);
  ++stats_.overlapped_copies;
  if (loader_->ready()) prefetched_ = begin_copy(loader_->next());  // overlaps with the step that is about to be queued
  return std::move(copy.batch);
}

LoadedBatches::Copy LoadedBatches::begin_copy(const HostBatch& host) {
  const TraceRange range("copy");
  const StreamGuard guard(*copy_stream_);
  Event begun(device_, true), done(device_, true), last_use(device_);
  begun.record(*copy_stream_);
  Batch batch =
      describe(host, host.input.to(device_, /*non_blocking=*/true), host.target.to(device_, /*non_blocking=*/true));
  done.record(*copy_stream_);
  last_use.record(*copy_stream_);
  const Delivered delivered_now = delivered(host);
  loader_->release(host, std::move(last_use));
  return {std::move(batch), std::move(begun), std::move(done), delivered_now};
}

LoadedBatches::Delivered LoadedBatches::delivered(const HostBatch& host) {
  Delivered delivered{0, 0, host.input.scalar_type()};
  for (const auto& tensor : {host.input, host.target}) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    delivered.bytes += bytes;
    if (tensor.is_pinned()) delivered.pinned_bytes += bytes;
  }
  return delivered;
}

void LoadedBatches::count(const Delivered& delivered, bool copied) {
  stats_.input_type = delivered.input_type;
  stats_.bytes_delivered += delivered.bytes;
  if (!copied) return;
  stats_.bytes_copied += delivered.bytes;
  stats_.pinned_bytes_copied += delivered.pinned_bytes;
}

BatchSourceStats LoadedBatches::take_stats() {
  stats_.threads = loader_->loading_threads();
  stats_.buffers = loader_->slots();
  stats_.thread_starts = loader_->thread_starts();
  stats_.data_wait_ms = loader_->take_wait_ms();
  stats_.work = loader_->take_work();
  if (files_) stats_.storage = files_->use();
  std::erase_if(timings_, [&](const TimedCopy& copy) {
    if (!copy.done.ready() || (copy.wait && !copy.wait->end.ready())) return false;  // counted later, not waited for
    const double ms = elapsed_ms(copy.begun, copy.done);
    stats_.copy_ms = stats_.copy_ms.value_or(0) + ms;
    copies_.bytes += copy.bytes;
    copies_.ms += ms;
    copies_.exposed_ms += copy.wait ? std::min(ms, elapsed_ms(copy.wait->start, copy.wait->end)) : ms;
    return true;
  });
  stats_.copies = copies_;
  return std::exchange(stats_, {});
}

namespace {

/// Draws values distributed like normalised bytes: uniform, with mean 0 and variance 1.
void draw_image(uint64_t key, int64_t index, float* values, int64_t count) {
  constexpr float kMean = 127.5f, kDeviation = 73.9f;
  for (int64_t i = 0; i < count; i += 16) {
    const PhiloxBlock block = philox(key, static_cast<uint64_t>(index), static_cast<uint64_t>(i / 16));
    uint8_t bytes[16];
    std::memcpy(bytes, block.data(), 16);
    for (int64_t j = 0; j < std::min<int64_t>(16, count - i); ++j)
      values[i + j] = (static_cast<float>(bytes[j]) - kMean) / kDeviation;
  }
}

struct Drawn {
  at::Tensor input, target;
};

/// Samples `first` … `first + items - 1` of all that ranks use.
Drawn draw_images(const DataSpec& data, int64_t first, int64_t items) {
  const int64_t side = data.synthetic.side, values = 3 * side * side;
  const uint64_t pixel_key = mix_key(data.seed, "synthetic pixels"), label_key = mix_key(data.seed, "synthetic labels");
  Drawn drawn{at::empty({items, 3, side, side}, at::kFloat), at::empty({items}, at::kLong)};
  for (int64_t i = 0; i < items; ++i) {
    draw_image(pixel_key, first + i, drawn.input.data_ptr<float>() + i * values, values);
    PhiloxStream labels(label_key, static_cast<uint64_t>(first + i));
    drawn.target.data_ptr<int64_t>()[i] =
        static_cast<int64_t>(labels.next_below(static_cast<uint64_t>(data.synthetic.num_classes)));
  }
  return drawn;
}

Drawn draw_text(const DataSpec& data, int64_t first, int64_t items) {
  const uint64_t key = mix_key(data.seed, "synthetic tokens");
  const at::Tensor tokens = at::empty({items, data.context + 1}, at::kLong);
  for (int64_t i = 0; i < items; ++i) {
    PhiloxStream stream(key, static_cast<uint64_t>(first + i));
    int64_t* row = tokens.data_ptr<int64_t>() + i * (data.context + 1);
    for (int64_t j = 0; j <= data.context; ++j)
      row[j] = static_cast<int64_t>(stream.next_below(static_cast<uint64_t>(data.synthetic.vocabulary)));
  }
  return {tokens.narrow(1, 0, data.context).contiguous(), tokens.narrow(1, 1, data.context).contiguous()};
}

}  // namespace

SyntheticBatches::SyntheticBatches(const DataSpec& data, at::MemoryFormat memory_format, c10::Device device,
                                   int64_t first_step)
    : schedule_(data.schedule()), context_(data.context), sequence_(schedule_.sequence_of(first_step)) {
  const int64_t items = schedule_.largest_items(), first = data.rank * data.batch_size;
  const Drawn drawn = data.is_text() ? draw_text(data, first, items) : draw_images(data, first, items);
  input_ = drawn.input.to(with_index(device));
  if (!data.is_text()) input_ = input_.contiguous(memory_format);
  target_ = drawn.target.to(with_index(device));
}

Batch SyntheticBatches::next() {
  const TraceRange range("loader::wait");
  const MicroBatch where = schedule_.at_sequence(sequence_++);
  std::vector<int64_t> sample_ids(static_cast<size_t>(where.items));
  std::iota(sample_ids.begin(), sample_ids.end(), schedule_.shape().rank * schedule_.shape().batch_size);
  return make_batch(where, input_.narrow(0, 0, where.items), target_.narrow(0, 0, where.items), std::move(sample_ids),
                    context_ > 0 ? uniform_counts(where, context_) : TokenCounts());
}

Batch largest_batch(const DataSpec& data, c10::Device device) {
  const int64_t items = data.schedule().largest_items(), width = largest_width(data);
  const MicroBatch where{.items = items, .step_items = items, .is_last = true};
  const auto zeros = [&] { return at::zeros({items, width}, at::TensorOptions(with_index(device)).dtype(at::kLong)); };
  return make_batch(where, zeros(), zeros(), std::vector<int64_t>(static_cast<size_t>(items)),
                    uniform_counts(where, width));
}

ShapedBatches::ShapedBatches(const DataSpec& data, const LoaderSettings& settings, const TensorFormat& format,
                             c10::Device device)
    : schedule_(data.schedule()), memory_format_(format.memory_format) {
  if (data.is_text())
    width_ = largest_width(data);
  else
    image_ = data.image_size();
  if (!data.dataset) {
    input_ = make_input();
    return;
  }
  if (settings.finish_on_device || data.device_dataset) type_ = format.compute_type;
  const BufferFormat buffer = buffer_format(data, settings, format.memory_format);
  if (data.device_dataset) {
    resident_.push_back(make({resident_bytes(buffer.size, data.samples())}, at::kByte));
    return;
  }
  const int64_t bytes = batch_bytes(buffer, schedule_.largest_items());
  if (device.is_cpu()) {
    const int64_t slots = slot_count(settings.num_workers, settings.prefetch_factor, bytes, settings.memory_limit);
    const bool in_place = !settings.finish_on_device;  // the step reads one of the slots
    if (in_place) input_ = make_input();
    resident_.push_back(make({(in_place ? slots - 1 : slots) * bytes}, at::kByte));
  } else if (settings.non_blocking && settings.pin_memory) {
    resident_.push_back(make({bytes}, at::kByte));
  }
}

at::Tensor ShapedBatches::make(at::IntArrayRef sizes, at::ScalarType type) const {
  return at::empty(sizes, at::TensorOptions(at::kMeta).dtype(type));
}

at::Tensor ShapedBatches::make_input() const {
  const int64_t items = schedule_.largest_items();
  if (width_ > 0) return make({items, width_}, at::kLong);
  return at::empty({items, 3, image_.height, image_.width},
                   at::TensorOptions(at::kMeta).dtype(type_).memory_format(memory_format_));
}

Batch ShapedBatches::next() {
  const MicroBatch where = schedule_.at_sequence(sequence_++);
  const at::Tensor input = (input_.defined() ? input_ : make_input()).narrow(0, 0, where.items);
  if (width_ == 0) return make_batch(where, input, make({where.items}, at::kLong), {});
  return make_batch(where, input, make({where.items, width_}, at::kLong), {}, uniform_counts(where, width_));
}

}  // namespace trainopt
