// Accuracy and loss on held-out data: no gradients, running statistics, the training precision, no label smoothing.
#pragma once

#include "base/json.h"
#include "model/model.h"
#include "model/task.h"

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

namespace trainopt {

class Precision;
struct DataPlan;

struct EvaluationResult {
  double loss = 0;            ///< mean over all samples
  double top1_pct = 0, top5_pct = 0;
  int64_t samples = 0;
  double wall_s = 0;
};

Json to_json(const EvaluationResult& result);
/// Of what to_json() gave.
EvaluationResult evaluation_from(const Json& json);

/// Every sample of `data` once; `each_batch` is called before each. Waits for the device. nullopt if `stop_signal` became other than 0 before the last batch.
std::optional<EvaluationResult> evaluate(Model& model, Task& task, Precision& precision, const DataPlan& data, at::Device device,
                                         const std::atomic<int>& stop_signal, const std::function<void()>& each_batch = [] {});

}  // namespace trainopt
