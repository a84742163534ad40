// A minimal training step with libtorch: an MLP's forward, backward and SGD with momentum on one batch that stays in
// memory. No loader, no records, no slots. What trainopt takes beyond this is its own cost (bench_overhead.py).
//
//   bare_loop STEPS BATCH INPUTS HIDDEN CLASSES [THREADS]
//
// Prints one JSON object: the number of measured steps, and the mean, p50 and p95 of the step time in ms.
#include "device/tensor.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

struct Layer {
  at::Tensor weight, bias;
};

at::Tensor parameter(at::IntArrayRef shape) { return at::randn(shape).mul_(0.1).requires_grad_(true); }

double at_share(const std::vector<double>& sorted, double share) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())))];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: bare_loop STEPS BATCH INPUTS HIDDEN CLASSES [THREADS]\n");
    return 2;
  }
  const int64_t steps = std::atoll(argv[1]), batch = std::atoll(argv[2]), inputs = std::atoll(argv[3]);
  const int64_t hidden = std::atoll(argv[4]), classes = std::atoll(argv[5]);
  if (argc > 6) {
    at::set_num_threads(std::atoi(argv[6]));
  }
  constexpr double kLearningRate = 0.001, kMomentum = 0.9;

  const Layer first{parameter({hidden, inputs}), parameter({hidden})},
      second{parameter({classes, hidden}), parameter({classes})};
  const std::vector<at::Tensor> parameters{first.weight, first.bias, second.weight, second.bias};
  std::vector<at::Tensor> velocities;
  for (const at::Tensor& each : parameters) {
    velocities.push_back(at::zeros_like(each));
  }
  const at::Tensor input = at::randn({batch, inputs}), target = at::randint(classes, {batch}, at::kLong);

  using Clock = std::chrono::steady_clock;
  std::vector<double> milliseconds;
  milliseconds.reserve(static_cast<size_t>(steps));
  double checksum = 0;
  auto before = Clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    const at::Tensor activation = at::relu(at::linear(input, first.weight, first.bias));
    const at::Tensor loss = at::cross_entropy_loss(at::linear(activation, second.weight, second.bias), target);
    loss.backward();
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < parameters.size(); ++i) {
        velocities[i].mul_(kMomentum).add_(parameters[i].grad());
        at::Tensor data = parameters[i];
        data.add_(velocities[i], -kLearningRate);
        data.mutable_grad().reset();
      }
    }
    checksum += loss.item<double>();  // trainopt records every loss too
    const auto now = Clock::now();
    milliseconds.push_back(std::chrono::duration<double, std::milli>(now - before).count());
    before = now;
  }

  const auto warmup = static_cast<std::ptrdiff_t>(milliseconds.size() / 10);
  milliseconds.erase(milliseconds.begin(), milliseconds.begin() + warmup);
  double sum = 0;
  for (const double each : milliseconds) {
    sum += each;
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  std::printf("{\"steps\": %zu, \"mean\": %.6f, \"p50\": %.6f, \"p95\": %.6f, \"checksum\": %.3f}\n",
              milliseconds.size(), sum / static_cast<double>(milliseconds.size()), at_share(milliseconds, 0.5),
              at_share(milliseconds, 0.95), checksum);
  return 0;
}
