// How the two halves of a step are executed: eagerly (plain), or recorded once and replayed.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

namespace trainopt {

struct Batch;
struct StepTrace;

/// The trainer's own code for the two halves, handed to the runner.
struct StepBody {
  std::function<at::Tensor(const Batch&)> micro_step =
      {};  ///< forward and backward; returns the micro-batch's share of the step's loss (0-dim, detached)
  // The two halves of micro_step. A runner may let several micro-batches' forwards precede the first one's backward.
  std::function<at::Tensor(const Batch&)> forward = {};  ///< returns the share of the step's loss, with its graph
  std::function<void(const at::Tensor& loss, bool is_last)> backward = {};  ///< `is_last`: of the step
  std::function<at::Tensor()> update_step =
      {};  ///< returns the gradient norm before clipping (0-dim); undefined without clipping
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  virtual at::Tensor micro_step(const StepBody& body, const Batch& micro) = 0;
  virtual at::Tensor update_step(const StepBody& body) = 0;
  /// Called when memory ran out: the runner releases what it keeps of earlier steps. With `permanently` it must not
  /// keep anything again. Returns false if it kept nothing.
  virtual bool drop_state(bool /*permanently*/) { return false; }
  /// Posts what it has done in the run so far, under its own labels.
  virtual void report(StepTrace&) const {}
};

class EagerRunner : public StepRunner {
 public:
  at::Tensor micro_step(const StepBody& body, const Batch& micro) override { return body.micro_step(micro); }
  at::Tensor update_step(const StepBody& body) override { return body.update_step(); }
};

}  // namespace trainopt
