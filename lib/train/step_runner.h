// How the two halves of a step are executed: as they are written (plain), or recorded once and replayed.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

namespace trainopt {

struct Batch;

/// The trainer's own code for the two halves, handed to the runner.
struct StepBody {
  std::function<at::Tensor(const Batch&)> micro_step;   ///< forward and backward; returns its share of the step's loss (0-dim, detached)
  std::function<void()> update_step;
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  virtual at::Tensor micro_step(const StepBody& body, const Batch& micro) = 0;
  virtual void update_step(const StepBody& body) = 0;
};

class EagerRunner : public StepRunner {
 public:
  at::Tensor micro_step(const StepBody& body, const Batch& micro) override { return body.micro_step(micro); }
  void update_step(const StepBody& body) override { body.update_step(); }
};

}  // namespace trainopt
