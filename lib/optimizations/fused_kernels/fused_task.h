// Classification that computes the loss and its gradient in one pass.
#pragma once

#include "kernels/head/head.h"
#include "model/task.h"

namespace trainopt::fused_kernels {

/// The same as ClassificationTask, which it uses in evaluation.
class FusedClassificationTask : public ClassificationTask {
 public:
  FusedClassificationTask(double label_smoothing, const kernels::HeadKernels& kernels)
      : ClassificationTask(label_smoothing), label_smoothing_(label_smoothing), kernels_(kernels) {}
  TaskOutput loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                  const ForwardContext& context) const override;

 private:
  double label_smoothing_;
  const kernels::HeadKernels& kernels_;
};

}  // namespace trainopt::fused_kernels
