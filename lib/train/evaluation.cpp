#include "train/evaluation.h"

#include "base/clock.h"
#include "comm/communicator.h"
#include "device/tensor.h"
#include "train/plan.h"

#include <limits>

namespace trainopt {

namespace {

/// The shape of a batch like `batch` with one sample.
std::vector<int64_t> one_of(const at::Tensor& batch) {
  auto sizes = batch.sizes().vec();
  sizes.front() = 1;
  return sizes;
}

}  // namespace

Json to_json(const EvaluationResult& result) {
  return {{"loss", result.loss},
          {"top1_pct", result.top1_pct},
          {"top5_pct", result.top5_pct},
          {"samples", result.samples},
          {"wall_s", result.wall_s}};
}

EvaluationResult evaluation_from(const Json& json) {
  const Json& loss = json.at("loss");  // null: non-finite, which JSON cannot represent
  return {.loss = loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>(),
          .top1_pct = json.at("top1_pct").get<double>(),
          .top5_pct = json.at("top5_pct").get<double>(),
          .samples = json.at("samples").get<int64_t>(),
          .wall_s = json.at("wall_s").get<double>()};
}

std::optional<EvaluationResult> evaluate(Model& model, Task& task, Precision& precision, const Plan& plan,
                                         Communicator& communicator, const std::function<bool()>& stopped) {
  const at::NoGradGuard no_grad;
  const auto started = Clock::now();
  const DataPlan& data = plan.evaluation.value().data;
  const int64_t steps = data.schedule().steps_per_epoch();
  const auto batches = plan.open_batches(data, {.end = steps});
  // Sums of loss, top-1 hits, top-5 hits and samples. They stay on the device until the end, in double so that millions
  // of samples lose no precision.
  at::Tensor sums = at::zeros({4}, at::TensorOptions(plan.device).dtype(at::kDouble));
  for (int64_t step = 0; step < steps; ++step) {
    if (stopped()) return std::nullopt;
    const Batch batch = batches->next();
    const bool nothing =
        batch.items == 0;  // possible in the last batch; the rank must still join the model's collectives
    const at::Tensor input = nothing ? batch.input.new_zeros(one_of(batch.input)) : batch.input;
    const at::Tensor target = nothing ? batch.target.new_zeros({1}) : batch.target;
    const auto autocast = precision.autocast();
    const auto output =
        task.evaluation_loss(model, input, target, ForwardContext{.training = false, .generator = std::nullopt});
    if (nothing) continue;
    sums[0] += output.loss.to(at::kDouble) * batch.items;
    sums.narrow(0, 1, 2) += task.correct(output.outputs, target);
    sums[3] += batch.items;
  }
  communicator.all_reduce(sums)->wait();
  const at::Tensor on_host = sums.to(at::kCPU);
  const double* found = on_host.const_data_ptr<double>();
  return EvaluationResult{.loss = found[0] / found[3],
                          .top1_pct = 100 * found[1] / found[3],
                          .top5_pct = 100 * found[2] / found[3],
                          .samples = static_cast<int64_t>(found[3]),
                          .wall_s = seconds_since(started)};
}

}  // namespace trainopt
