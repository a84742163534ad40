#include "data/schedule.h"

#include "base/error.h"

#include <algorithm>

namespace trainopt {
namespace {
int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
}  // namespace

std::optional<std::string> why_no_step(const BatchSchedule::Shape& shape) {
  const int64_t step_samples = shape.ranks * shape.accumulation * shape.batch_size;
  if (!shape.drop_last || shape.samples >= step_samples) return std::nullopt;
  return fmt::format(
      "an epoch has fewer samples than one step needs; lower data.batch_size or set data.drop_last: false: {} samples, "
      "{} a step (ranks {} × accumulation {} × batch_size {})",
      shape.samples, step_samples, shape.ranks, shape.accumulation, shape.batch_size);
}

BatchSchedule::BatchSchedule(const Shape& shape) : shape_(shape) {
  TRAINOPT_CHECK(shape.samples >= 1 && shape.batch_size >= 1 && shape.ranks >= 1 && shape.accumulation >= 1);
  TRAINOPT_CHECK(shape.rank >= 0 && shape.rank < shape.ranks);
  step_samples_ = shape.ranks * shape.accumulation * shape.batch_size;
  steps_per_epoch_ = shape.drop_last ? shape.samples / step_samples_ : divide_up(shape.samples, step_samples_);
  if (const auto reason = why_no_step(shape)) throw UserError(*reason, ExitCode::data);
  micros_per_epoch_ = (steps_per_epoch_ - 1) * shape.accumulation + micros_in_step(steps_per_epoch_ - 1);
}

int64_t BatchSchedule::items_in_step(int64_t step_in_epoch) const {
  return std::min(step_samples_, shape_.samples - step_in_epoch * step_samples_);
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
  batch.step_items = items_in_step(step_in_epoch);
  const int64_t first_in_step = (micro * shape_.ranks + shape_.rank) * shape_.batch_size;
  batch.first = step_in_epoch * step_samples_ + first_in_step;
  batch.items = std::clamp(batch.step_items - first_in_step, int64_t{0}, shape_.batch_size);
  batch.is_last = micro == micros - 1;
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
