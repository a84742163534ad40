// How the two halves of a step are executed: as they are written (plain), or recorded once and replayed.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

namespace trainopt {

struct Batch;
struct StepTrace;

/// The trainer's own code for the two halves, handed to the runner.
struct StepBody {
  std::function<at::Tensor(const Batch&)>
      micro_step;  ///< forward and backward; returns its share of the step's loss (0-dim, detached)
  std::function<at::Tensor()>
      update_step;  ///< returns the gradients' norm before clipping (0-dim); undefined without clipping
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  virtual at::Tensor micro_step(const StepBody& body, const Batch& micro) = 0;
  virtual at::Tensor update_step(const StepBody& body) = 0;
  /// Memory ran out: what the runner keeps of earlier steps must go; with `for_good`, if there was something, nothing
  /// is kept again. False: it kept nothing.
  virtual bool forget(bool /*for_good*/) { return false; }
  /// Posts what it has done in the run so far under labels of its own.
  virtual void report(StepTrace&) const {}
};

class EagerRunner : public StepRunner {
 public:
  at::Tensor micro_step(const StepBody& body, const Batch& micro) override { return body.micro_step(micro); }
  at::Tensor update_step(const StepBody& body) override { return body.update_step(); }
};

}  // namespace trainopt
