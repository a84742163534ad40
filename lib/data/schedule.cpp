#include "data/schedule.h"

#include "base/error.h"

#include <algorithm>

namespace trainopt {
namespace {
int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
}  // namespace

std::optional<std::string> why_no_step(const BatchSchedule::Shape& shape) {
  const int64_t step_samples = shape.ranks * shape.accumulation * shape.batch_size;
  if (shape.last_batch != LastBatch::keep && shape.samples < shape.ranks * shape.batch_size &&
      (shape.last_batch == LastBatch::drop || shape.ranks == 1))
    return fmt::format("the short batch is the only one; lower data.batch_size: {}, {} a batch",
                       counted(shape.samples, "sample"), shape.ranks * shape.batch_size);
  if (!shape.drop_last || shape.samples >= step_samples) return std::nullopt;
  return fmt::format(
      "an epoch has fewer samples than one step needs; lower data.batch_size or set data.drop_last: false: {} samples, "
      "{} a step (ranks {} × accumulation {} × batch_size {})",
      shape.samples, step_samples, shape.ranks, shape.accumulation, shape.batch_size);
}

BatchSchedule::BatchSchedule(const Shape& shape) : shape_(shape) {
  TRAINOPT_CHECK(shape.samples >= 1 && shape.batch_size >= 1 && shape.ranks >= 1 && shape.accumulation >= 1);
  TRAINOPT_CHECK(shape.rank >= 0 && shape.rank < shape.ranks);
  if (const auto reason = why_no_step(shape)) throw UserError(*reason, ExitCode::data);
  if (shape.last_batch == LastBatch::merge && shape.ranks == 1) joined_ = shape.short_batch();
  samples_ = shape.samples - (shape.last_batch == LastBatch::drop ? shape.short_batch() : joined_);
  step_samples_ = shape.ranks * shape.accumulation * shape.batch_size;
  steps_per_epoch_ = shape.drop_last ? samples_ / step_samples_ : divide_up(samples_, step_samples_);
  micros_per_epoch_ = (steps_per_epoch_ - 1) * shape.accumulation + micros_in_step(steps_per_epoch_ - 1);
}

int64_t BatchSchedule::items_in_step(int64_t step_in_epoch) const {
  return std::min(step_samples_, samples_ - step_in_epoch * step_samples_);
}

int64_t BatchSchedule::micros_in_step(int64_t step) const {
  return divide_up(items_in_step(step % steps_per_epoch_), shape_.ranks * shape_.batch_size);
}

MicroBatch BatchSchedule::at(int64_t step, int64_t micro) const {
  const int64_t micros = micros_in_step(step);
  TRAINOPT_CHECK(step >= 0 && micro >= 0 && micro < micros);
  const int64_t step_in_epoch = step % steps_per_epoch_;
  MicroBatch batch;
  batch.step = step;
  batch.epoch = step / steps_per_epoch_;
  batch.micro = micro;
  const bool in_last_step = step_in_epoch == steps_per_epoch_ - 1;
  batch.step_items = items_in_step(step_in_epoch) + (in_last_step ? joined_ : 0);
  batch.is_last = micro == micros - 1;
  const int64_t together = shape_.ranks * shape_.batch_size, first = micro * together;
  int64_t mine = shape_.rank * shape_.batch_size;  // the first of this rank's samples in the micro-batch
  batch.items = std::clamp(batch.step_items - first - mine, int64_t{0}, shape_.batch_size);
  if (batch.is_last && in_last_step) {
    batch.items += joined_;
    const int64_t left = batch.step_items - first;
    if (shape_.last_batch == LastBatch::merge && left < together) {
      batch.items = left / shape_.ranks + (shape_.rank < left % shape_.ranks ? 1 : 0);
      mine = shape_.rank * (left / shape_.ranks) + std::min(shape_.rank, left % shape_.ranks);
    }
  }
  batch.first = step_in_epoch * step_samples_ + first + mine;
  return batch;
}

MicroBatch BatchSchedule::at_sequence(int64_t sequence) const {
  const int64_t epoch = sequence / micros_per_epoch_, in_epoch = sequence % micros_per_epoch_;
  return at(epoch * steps_per_epoch_ + in_epoch / shape_.accumulation, in_epoch % shape_.accumulation);
}

int64_t BatchSchedule::sequence_of(int64_t step) const {
  return step / steps_per_epoch_ * micros_per_epoch_ + step % steps_per_epoch_ * shape_.accumulation;
}

}  // namespace trainopt
