// What a model is trained for: defines the loss and which predictions count as correct.
#pragma once

#include "model/model.h"

namespace trainopt {

/// What an evaluation finds beside the loss.
enum class Metrics { none, accuracy, perplexity };

struct TaskOutput {
  at::Tensor loss;  ///< 0-dim float32: the mean over the batch's samples, or over the tokens to predict; undefined in
                    ///< evaluation if another process computes it
  at::Tensor outputs;  ///< the model's outputs; undefined if the task does not compute them. Of a program that computes
                       ///< its own loss the logits beside it, or the loss
};

class Task {
 public:
  virtual ~Task() = default;
  /// Runs the model and computes the training loss.
  virtual TaskOutput loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                          const ForwardContext& context) const = 0;
  /// Runs the model and computes the loss for evaluation, without its regularisation (label smoothing).
  virtual TaskOutput evaluation_loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                                     const ForwardContext& context) const = 0;
  virtual Metrics metrics() const = 0;
  /// Number of samples correct in top-1 and in top-5: int64 [2], on the device of `outputs`; undefined if the task does
  /// not measure accuracy.
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
  Metrics metrics() const override { return Metrics::accuracy; }
  at::Tensor correct(const at::Tensor& outputs, const at::Tensor& target) const override;

 private:
  double label_smoothing_;
};

/// Predicts each token's successor: softmax cross-entropy. `input` and `target`: int64 [batch, tokens]; targets that
/// are kIgnoredTarget have no loss, and there must be others.
class LanguageModelTask : public Task {
 public:
  TaskOutput loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                  const ForwardContext& context) const override;
  TaskOutput evaluation_loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                             const ForwardContext& context) const override;
  Metrics metrics() const override { return Metrics::perplexity; }
  at::Tensor correct(const at::Tensor&, const at::Tensor&) const override { return {}; }
};

/// The loss that a program of the user's own computes from input and target, which are the data's: images with a class
/// each, or tokens with their successors. It should be a mean over the samples, or over the tokens to predict, as
/// micro-batches are weighted by these. `has_logits`: the program returns logits of classes too, which are counted.
class ProgramLossTask : public Task {
 public:
  explicit ProgramLossTask(bool has_logits) : has_logits_(has_logits) {}
  TaskOutput loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                  const ForwardContext& context) const override;
  TaskOutput evaluation_loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                             const ForwardContext& context) const override;
  Metrics metrics() const override { return has_logits_ ? Metrics::accuracy : Metrics::none; }
  at::Tensor correct(const at::Tensor& outputs, const at::Tensor& target) const override;

 private:
  bool has_logits_;
};

}  // namespace trainopt
