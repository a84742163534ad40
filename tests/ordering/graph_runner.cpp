// Every wait between a loader and a step that is recorded and replayed on a stream of its own.
#include "optimizations/cuda_graph/cuda_graph.h"

#include "data/batch_source.h"
#include "device/device.h"
#include "device/tensor.h"
#include "optimizations/tape_graph.h"
#include "support/catch.h"
#include "support/loaded_data.h"
#include "support/plans.h"
#include "support/recording_device.h"
#include "unit/data/probe.h"

using namespace trainopt;
using namespace trainopt::test;
using namespace trainopt::cuda_graph;

namespace {

constexpr int64_t kSamples = 32, kBatch = 4, kMicros = 2, kSteps = 3 * kSamples / (kBatch * kMicros);

/// One weight on the recording device, without a gradient.
class OneWeight : public ParameterStore {
 public:
  OneWeight() : parameters_{{"weight", at::ones({3}, at::TensorOptions(at::kFloat).device(recording_device()))}} {}
  const NamedTensors& parameters() const override { return parameters_; }
  Scope accumulate(bool) override { return Scope(); }
  std::vector<at::Tensor> gradients() const override { return {at::Tensor()}; }
  void clear_gradients() override {}

 protected:
  GradientMemory complete_gradients() override { return {}; }

 private:
  NamedTensors parameters_;
};

/// Loads, records and replays; the losses are read by `stream`, the trainer's. Returns them.
HappensBefore replayed_steps(int64_t workers, StepTrace& trace) {
  return recorded_accesses([&] {
    LoadedData data;
    data.batch_size = kBatch;
    data.accumulation = kMicros;
    data.num_workers = workers;
    LoadedBatches source(make_loader(data, std::make_shared<ProbeDataset>(kSamples, 4)), recording_device(),
                         /*non_blocking=*/true, std::nullopt);
    OneWeight parameters;
    const Plan plan = small_plan(kSteps);
    int64_t steps_done = 0;
    BuildContext context{plan,    recording_device(), {},          nullptr,
                         nullptr, &parameters,        &steps_done, make_generator(at::kCPU, 1)};
    GraphRunner runner(context, make_tape_graph);
    at::Tensor weight = parameters.parameters().front().second, sum = at::zeros({3}, weight.options());
    const StepBody body{.micro_step =
                            [&](const Batch& micro) {
                              const at::Tensor loss = (micro.input.sum({2, 3}) * weight).sum();
                              sum.add_(loss);
                              return loss;
                            },
                        .update_step =
                            [&] {
                              weight.sub_(sum * 1e-6);
                              sum.zero_();
                              return weight.sum();
                            }};
    std::vector<at::Tensor> losses;
    for (; steps_done < kSteps; ++steps_done) {
      for (int64_t micro = 0; micro < kMicros; ++micro) losses.push_back(runner.micro_step(body, source.next()) + 1);
      losses.push_back(runner.update_step(body) + 1);
    }
    for (const at::Tensor& loss : losses) CHECK(std::isfinite(loss.item<float>()));
    runner.report(trace);
  });
}

}  // namespace

TEST_CASE("a replayed step waits for its batch, and what follows waits for the replay") {
  const int64_t workers = GENERATE(0, 2);
  StepTrace trace;
  const HappensBefore seen = replayed_steps(workers, trace);
  CHECK(seen.problems() == std::vector<std::string>());
  CHECK(trace.count(kReplayedStepsLabel) == double(kSteps - GraphRunner::kEagerSteps));
  CHECK(trace.count(kCopiesLabel) > 2 * kMicros);
}
