#include "train/evaluation.h"

#include "base/clock.h"
#include "comm/communicator.h"
#include "device/tensor.h"
#include "train/plan.h"

#include <cmath>
#include <limits>

namespace trainopt {

namespace {

/// The shape of a batch like `batch` with one sample.
std::vector<int64_t> one_of(const at::Tensor& batch) {
  auto sizes = batch.sizes().vec();
  sizes.front() = 1;
  return sizes;
}

template <class Result>
Json numbers_json(const Result& result) {
  return {{"loss", result.loss},
          {"top1_pct", result.top1_pct ? Json(*result.top1_pct) : Json()},
          {"top5_pct", result.top5_pct ? Json(*result.top5_pct) : Json()},
          {"perplexity", result.perplexity ? Json(*result.perplexity) : Json()}};
}

template <class Result>
void read_numbers(const Json& json, Result& result) {
  const Json& loss = json.at("loss");  // null: non-finite, which JSON cannot represent
  const auto known = [&](const char* key) {
    const Json value = json.value(key, Json());
    return value.is_null() ? std::nullopt : std::optional(value.get<double>());
  };
  result.loss = loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>();
  result.top1_pct = known("top1_pct");
  result.top5_pct = known("top5_pct");
  result.perplexity = known("perplexity");
}

}  // namespace

Json to_json(const EvaluationResult& result) {
  Json json = numbers_json(result);
  json["samples"] = result.samples;
  json["wall_s"] = result.wall_s;
  if (result.average) json["average"] = numbers_json(*result.average);
  return json;
}

EvaluationResult evaluation_from(const Json& json) {
  EvaluationResult result;
  read_numbers(json, result);
  result.samples = json.at("samples").get<int64_t>();
  result.wall_s = json.at("wall_s").get<double>();
  if (json.contains("average")) read_numbers(json.at("average"), result.average.emplace());
  return result;
}

std::optional<EvaluationResult> evaluate(Model& model, Task& task, Precision& precision, const Plan& plan,
                                         Communicator& communicator, const std::function<bool()>& stopped) {
  const at::NoGradGuard no_grad;
  const auto started = Clock::now();
  const DataPlan& data = plan.evaluation.value().data;
  const int64_t steps = data.schedule().steps_per_epoch();
  const auto batches = plan.open_batches(data, {.end = steps});
  // Sums of loss, top-1 hits, top-5 hits, samples and tokens to predict. They stay on the device until the end, in
  // double so that millions of samples lose no precision.
  at::Tensor sums = at::zeros({5}, at::TensorOptions(plan.device).dtype(at::kDouble));
  for (int64_t step = 0; step < steps; ++step) {
    if (stopped()) return std::nullopt;
    const Batch batch = batches->next();
    const bool nothing =
        batch.items == 0;  // possible in the last batch; the rank must still join the model's collectives
    const at::Tensor input = nothing ? batch.input.new_zeros(one_of(batch.input)) : batch.input;
    const at::Tensor target = nothing ? batch.target.new_zeros(one_of(batch.target)) : batch.target;
    const auto autocast = precision.autocast();
    const auto output =
        task.evaluation_loss(model, input, target, ForwardContext{.training = false, .generator = std::nullopt});
    if (nothing || !output.loss.defined()) continue;
    sums[0] += output.loss.to(at::kDouble) * (batch.tokens > 0 ? batch.tokens : batch.items);
    if (task.counts_correct()) sums.narrow(0, 1, 2) += task.correct(output.outputs, target);
    sums[3] += batch.items;
    sums[4] += batch.tokens;
  }
  communicator.all_reduce(sums)->wait();
  const at::Tensor on_host = sums.to(at::kCPU);
  const double* found = on_host.const_data_ptr<double>();
  EvaluationResult result{.loss = found[0] / (found[4] > 0 ? found[4] : found[3]),
                          .samples = static_cast<int64_t>(found[3]),
                          .wall_s = seconds_since(started)};
  if (task.counts_correct()) {
    result.top1_pct = 100 * found[1] / found[3];
    result.top5_pct = 100 * found[2] / found[3];
  } else {
    result.perplexity = std::exp(result.loss);
  }
  return result;
}

}  // namespace trainopt
