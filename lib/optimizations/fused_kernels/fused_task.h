// Classification whose loss comes with its gradient.
#pragma once

#include "model/task.h"
#include "optimizations/fused_kernels/head_kernels.h"

namespace trainopt::fused_kernels {

/// The mean over the batch, with a gradient by `logits`: no second one, and once (libtorch refuses another backward).
at::Tensor fused_cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing,
                               const HeadKernels& kernels);

/// As ClassificationTask, which it is in evaluation.
class FusedClassificationTask : public ClassificationTask {
 public:
  FusedClassificationTask(double label_smoothing, const HeadKernels& kernels)
      : ClassificationTask(label_smoothing), label_smoothing_(label_smoothing), kernels_(kernels) {}
  TaskOutput loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                  const ForwardContext& context) const override;

 private:
  double label_smoothing_;
  const HeadKernels& kernels_;
};

}  // namespace trainopt::fused_kernels
