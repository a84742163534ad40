#include "model/task.h"

#include "base/error.h"
#include "device/tensor.h"

#include <c10/util/Exception.h>

#include <algorithm>

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

/// How many classes or tokens a program's own loss knows is not always seen before it runs.
at::Tensor forward_of_program(Model& model, const at::Tensor& input, const ForwardContext& context) {
  try {
    return model.forward(input, context);
  } catch (const c10::IndexError& error) {
    const int64_t largest =
        std::max(context.target.max().item<int64_t>(), input.is_floating_point() ? 0 : input.max().item<int64_t>());
    throw UserError(fmt::format("the program, which computes its own loss, does not know a class or token of the data, "
                                "where the largest of the batch is {}: {}",
                                largest, error.what_without_backtrace()),
                    ExitCode::data);
  }
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
  at::Tensor loss = forward_of_program(model, input, with_target).to(at::kFloat);
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
