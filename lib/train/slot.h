// A slot of the trainer always holds exactly one part: plain by default, replaced or wrapped by optimizations.
#pragma once

#include "base/error.h"
#include "metrics/record.h"
#include "train/checkpoint/archive.h"
#include "train/evaluation.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainopt {

struct BuildContext;  // inputs for building parts, below

template <class Part>
class Slot {
 public:
  using Make = std::function<std::unique_ptr<Part>(const BuildContext&)>;
  using Wrap = std::function<std::unique_ptr<Part>(const BuildContext&, std::unique_ptr<Part>)>;

  /// `what` describes the plain part in a few words, for the printed plan.
  Slot(std::string name, std::string what, Make plain)
      : name_(std::move(name)), what_(std::move(what)), make_(std::move(plain)) {}

  /// Replaces the plain part. Throws UserError naming both if another optimization has already filled the slot.
  void fill(const std::string& by, std::string what, Make make) {
    if (!filled_by_.empty())
      throw UserError(fmt::format("{} and {} both replace the {}; switch one of them off", filled_by_, by, name_));
    filled_by_ = by;
    what_ = std::move(what);
    make_ = std::move(make);
  }

  /// Wraps the part in another one; the last wrapper is outermost.
  void wrap(const std::string& by, std::string what, Wrap wrap) {
    wrappers_.push_back({by, std::move(what), std::move(wrap)});
  }

  const std::string& name() const { return name_; }
  bool is_plain() const { return filled_by_.empty() && wrappers_.empty(); }

  /// Describes the part and, in parentheses, what put it there; then the wrappers in the same form.
  std::string describe() const {
    std::string text = filled_by_.empty() ? what_ : fmt::format("{} ({})", what_, filled_by_);
    for (const auto& wrapper : wrappers_) text += fmt::format(", {} ({})", wrapper.what, wrapper.by);
    return text;
  }

  std::unique_ptr<Part> build(const BuildContext& context) const {
    auto part = make_(context);
    for (const auto& wrapper : wrappers_) part = wrapper.wrap(context, std::move(part));
    return part;
  }

 private:
  struct Wrapper {
    std::string by, what;
    Wrap wrap;
  };
  std::string name_, what_, filled_by_;
  Make make_;
  std::vector<Wrapper> wrappers_;
};

// Callbacks through which a run reports its progress.

struct NonfiniteStep {
  int64_t step = 0, epoch = 0;
  std::optional<double> loss, grad_norm;
  std::vector<int64_t> sample_ids;         ///< samples of all ranks, in the order of ranks
  std::vector<int64_t> sample_ids_before;  ///< samples of the step before, if its update may be the cause
  std::string began;                       ///< where in the step it began, if something looked; otherwise empty
  std::string action;                      ///< what is done about it: "the step was skipped"
};

/// Called as events happen, on the trainer's thread.
class RunListener {
 public:
  virtual ~RunListener() = default;
  /// Called for steps in order, on a GPU one or two steps late. Telemetry columns are still empty.
  virtual void step_done(const StepRecord& row) = 0;
  virtual void evaluated(int64_t step, const EvaluationResult& result) = 0;
  /// A step's loss or gradients were non-finite. Called after its step_done().
  virtual void not_finite(const NonfiniteStep&) {}
  /// The trainer enters a stage such as "waiting for data" after `steps` completed steps. `stage` is a string literal.
  /// Called several times per step.
  virtual void at(const char* /*stage*/, int64_t /*steps*/) {}
  /// A checkpoint is about to be saved. The listener may add what its records need. Everything reported so far must be
  /// in the record files before the checkpoint is committed.
  virtual void save(ArchiveWriter&) {}
};

// How the two halves of a step are executed: eagerly (plain), or recorded once and replayed.

struct Batch;
struct StepTrace;

/// The trainer's own code for the two halves, handed to the runner.
struct StepBody {
  std::function<at::Tensor(const Batch&)> micro_step =
      {};  ///< forward and backward; returns the micro-batch's share of the step's loss (0-dim, detached)
  // The parts of micro_step. A runner may let several micro-batches' forwards precede the first one's backward.
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

// The inputs from which the parts in the slots are built.

class Communicator;
class ParameterStore;
class RankGroups;
struct Plan;

struct BuildContext {
  const Plan& plan;
  at::Device device;
  std::filesystem::path run_dir = {};    ///< where a part may write; empty if the run has no folder
  Communicator* communicator = nullptr;  ///< connects the job's ranks; also set with one rank
  Model* model = nullptr;                ///< already built, on `device`
  ParameterStore* parameters = nullptr;  ///< null while the store itself is being built
  const int64_t* steps_done = nullptr;   ///< the run's, including before a resume; the running step's number minus 1
  std::optional<at::Generator> generator = std::nullopt;  ///< draws the model's random numbers
  Communicator* replicas = nullptr;  ///< connects the ranks that hold the same parameters; without a pipeline all ranks
  RankGroups* groups = nullptr;      ///< holds the communicators of a pipeline
};

}  // namespace trainopt
