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

at::Tensor count_correct(const at::Tensor& logits, const at::Tensor& target) {
  const at::NoGradGuard no_grad;
  const int64_t attempts = std::min<int64_t>(5, logits.size(1));
  const at::Tensor best = std::get<1>(logits.topk(attempts, 1));
  const at::Tensor hits = best.eq(target.unsqueeze(1));
  return at::stack({hits.select(1, 0).sum(), hits.sum()});
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
  return count_correct(outputs, target);
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

TaskOutput ProgramLossTask::loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                                 const ForwardContext& context) const {
  ForwardContext with_target = context;
  with_target.target = target;
  with_target.side = std::make_shared<SideValues>();
  at::Tensor loss = model.forward(input, with_target).to(at::kFloat);
  at::Tensor outputs = has_logits_ ? with_target.side->logits : loss.detach();
  return {std::move(loss), std::move(outputs)};
}

TaskOutput ProgramLossTask::evaluation_loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                                            const ForwardContext& context) const {
  return loss(model, input, target, context);
}

at::Tensor ProgramLossTask::correct(const at::Tensor& outputs, const at::Tensor& target) const {
  return has_logits_ ? count_correct(outputs, target) : at::Tensor();
}

}  // namespace trainopt
