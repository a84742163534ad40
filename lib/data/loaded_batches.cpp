#include "base/clock.h"
#include "base/error.h"
#include "data/batch_source.h"
#include "device/device.h"
#include "device/tensor.h"
#include "device/trace_range.h"

namespace trainopt {
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

}  // namespace trainopt
