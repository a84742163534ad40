// What a model is trained for: it owns the loss and what counts as right.
#pragma once

#include "model/model.h"

namespace trainopt {

struct TaskOutput {
  at::Tensor loss;     ///< 0-dim float32: the mean over the batch's samples
  at::Tensor outputs;  ///< what the model gave
};

class Task {
 public:
  virtual ~Task() = default;
  /// Runs the model.
  virtual TaskOutput loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                          const ForwardContext& context) const = 0;
  /// The same for evaluation, where what only regularises training is left out.
  virtual TaskOutput evaluation_loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                                     const ForwardContext& context) const = 0;
  /// Samples right at the first attempt and within five: int64 [2], on the device of `outputs`.
  virtual at::Tensor correct(const at::Tensor& outputs, const at::Tensor& target) const = 0;
};

/// One class for each sample: softmax cross-entropy. `target`: int64 [batch], each in [0, classes).
class ClassificationTask : public Task {
 public:
  explicit ClassificationTask(double label_smoothing) : label_smoothing_(label_smoothing) {}
  TaskOutput loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                  const ForwardContext& context) const override;
  TaskOutput evaluation_loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                             const ForwardContext& context) const override;
  at::Tensor correct(const at::Tensor& outputs, const at::Tensor& target) const override;

 private:
  double label_smoothing_;
};

}  // namespace trainopt
