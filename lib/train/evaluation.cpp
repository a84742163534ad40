#include "train/evaluation.h"

#include "base/clock.h"
#include "train/plan.h"

#include <ATen/ATen.h>

#include <limits>

namespace trainopt {

Json to_json(const EvaluationResult& result) {
  return {{"loss", result.loss}, {"top1_pct", result.top1_pct}, {"top5_pct", result.top5_pct}, {"samples", result.samples}, {"wall_s", result.wall_s}};
}

EvaluationResult evaluation_from(const Json& json) {
  const Json& loss = json.at("loss");   // null: it was not finite, for which JSON has no word
  return {.loss = loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>(), .top1_pct = json.at("top1_pct").get<double>(), .top5_pct = json.at("top5_pct").get<double>(),
          .samples = json.at("samples").get<int64_t>(), .wall_s = json.at("wall_s").get<double>()};
}

std::optional<EvaluationResult> evaluate(Model& model, Task& task, Precision& precision, const DataPlan& data, at::Device device,
                                         const std::atomic<int>& stop_signal, const std::function<void()>& each_batch) {
  const at::NoGradGuard no_grad;
  const auto started = Clock::now();
  const auto schedule = data.schedule();
  const auto batches = data.open(device, schedule.steps_per_epoch());
  // Sums stay on the device until the end; double, so that a million samples lose nothing.
  at::Tensor loss_sum = at::zeros({}, at::TensorOptions(device).dtype(at::kDouble));
  at::Tensor correct = at::zeros({2}, at::TensorOptions(device).dtype(at::kLong));
  EvaluationResult result;
  for (int64_t step = 0; step < schedule.steps_per_epoch(); ++step) {
    if (stop_signal != 0) return std::nullopt;
    each_batch();
    const Batch batch = batches->next();
    const auto autocast = precision.autocast();
    const auto output = task.evaluation_loss(model, batch.get("input"), batch.get("target"), ForwardContext{.training = false, .generator = std::nullopt});
    loss_sum += output.loss.to(at::kDouble) * batch.items;
    correct += task.correct(output.outputs, batch.get("target"));
    result.samples += batch.items;
  }
  const double all = static_cast<double>(result.samples);
  result.loss = loss_sum.item<double>() / all;
  result.top1_pct = 100.0 * static_cast<double>(correct[0].item<int64_t>()) / all;
  result.top5_pct = 100.0 * static_cast<double>(correct[1].item<int64_t>()) / all;
  result.wall_s = seconds_since(started);
  return result;
}

}  // namespace trainopt
