// Maps positions of the epoch's order to steps, micro-batches and ranks. It is a pure function: every rank computes the
// same number of micro-batches for every step, so no rank can run out before another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainopt {

/// What becomes of an epoch's last micro-batch if it does not have a full batch for every rank. `drop`: it is left out.
/// `merge`: with one rank, its samples join the micro-batch before it; several ranks share them evenly.
enum class LastBatch { keep, drop, merge };

/// This rank's share of one micro-batch.
struct MicroBatch {
  int64_t step = 0;  ///< counted from 0 over all epochs
  int64_t epoch = 0;
  int64_t micro = 0;       ///< within the step, from 0
  int64_t first = 0;       ///< this rank's positions in the epoch's order: first … first + items - 1
  int64_t items = 0;       ///< samples on this rank; may be 0 in a short last step of several ranks, or with
                           ///< LastBatch::merge exceed the batch size
  int64_t step_items = 0;  ///< samples of the whole step: all micro-batches, all ranks
  bool is_last = false;    ///< last micro-batch of its step

  bool is_first() const { return micro == 0; }
  /// The weight of this rank's mean over its items in the step's mean.
  double weight() const { return static_cast<double>(items) / static_cast<double>(step_items); }
};

class BatchSchedule {
 public:
  struct Shape {
    int64_t samples = 0;     ///< N, per epoch
    int64_t batch_size = 0;  ///< B, per rank and micro-batch
    int64_t ranks = 1;       ///< W
    int64_t rank = 0;
    int64_t accumulation = 1;  ///< A, micro-batches per step
    bool drop_last = true;
    LastBatch last_batch = LastBatch::keep;

    /// Samples of an epoch's last micro-batch on all ranks, if that is short; 0: there is none.
    int64_t short_batch() const { return drop_last ? 0 : samples % (ranks * batch_size); }
  };
  /// Throws UserError(data) if an epoch would have no steps, or no micro-batch that a short one can join.
  explicit BatchSchedule(const Shape& shape);

  const Shape& shape() const { return shape_; }
  int64_t step_samples() const { return step_samples_; }  ///< G = W·A·B, samples of a full step
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// The most samples that a micro-batch has on one rank.
  int64_t largest_items() const { return shape_.batch_size + joined_; }
  int64_t micros_per_epoch() const { return micros_per_epoch_; }
  /// Fewer than `accumulation` only in a short last step of an epoch.
  int64_t micros_in_step(int64_t step) const;

  MicroBatch at(int64_t step, int64_t micro) const;
  /// The micro-batch with this number, counted over all steps and epochs.
  MicroBatch at_sequence(int64_t sequence) const;
  int64_t sequence_of(int64_t step) const;

 private:
  int64_t items_in_step(int64_t step_in_epoch) const;

  Shape shape_;
  int64_t samples_;     ///< samples of an epoch, without those that are dropped or join the last micro-batch
  int64_t joined_ = 0;  ///< samples that join the epoch's last micro-batch
  int64_t step_samples_, steps_per_epoch_, micros_per_epoch_;
};

/// Why an epoch of this shape has no steps, with the numbers; nullopt if it has any.
std::optional<std::string> why_no_step(const BatchSchedule::Shape& shape);

}  // namespace trainopt
