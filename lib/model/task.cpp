#include "model/task.h"

#include "device/tensor.h"

namespace trainopt {
namespace {

TaskOutput cross_entropy(Model& model, const at::Tensor& input, const at::Tensor& target, const ForwardContext& context,
                         double smoothing) {
  at::Tensor outputs = model.forward(input, context);
  // At least in float32, also under autocast, where the outputs are 16-bit.
  const at::Tensor wide = outputs.to(at::promoteTypes(outputs.scalar_type(), at::kFloat));
  at::Tensor loss = at::cross_entropy_loss(wide, target, {}, at::Reduction::Mean, /*ignore_index=*/-100, smoothing);
  return {std::move(loss), std::move(outputs)};
}

}  // namespace

TaskOutput ClassificationTask::loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                                    const ForwardContext& context) const {
  return cross_entropy(model, input, target, context, label_smoothing_);
}

TaskOutput ClassificationTask::evaluation_loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                                               const ForwardContext& context) const {
  return cross_entropy(model, input, target, context, 0);
}

at::Tensor ClassificationTask::correct(const at::Tensor& outputs, const at::Tensor& target) const {
  const at::NoGradGuard no_grad;
  const int64_t attempts = std::min<int64_t>(5, outputs.size(1));
  const at::Tensor best = std::get<1>(outputs.topk(attempts, 1));
  const at::Tensor hits = best.eq(target.unsqueeze(1));
  return at::stack({hits.select(1, 0).sum(), hits.sum()});
}

TaskOutput LanguageModelTask::loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                                   const ForwardContext& context) const {
  ForwardContext with_target = context;
  with_target.target = target;
  return {model.forward(input, with_target), {}};
}

TaskOutput LanguageModelTask::evaluation_loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                                              const ForwardContext& context) const {
  return loss(model, input, target, context);
}

}  // namespace trainopt
