// The one loop. Built from a plan; knows no option by name. Nothing in it is global, so that two trainers can take turns in one process.
#pragma once

#include "base/clock.h"
#include "data/batch_source.h"
#include "metrics/late_reader.h"
#include "train/evaluation.h"
#include "train/plan.h"
#include "train/schedule.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>

namespace trainopt {

/// Told what happens while it happens, on the trainer's thread.
class RunListener {
 public:
  virtual ~RunListener() = default;
  /// Steps in order, on a GPU one or two late. Telemetry's columns are still empty.
  virtual void step_done(const Row& row) = 0;
  virtual void evaluated(int64_t step, const EvaluationResult& result) = 0;
};

struct RunOutcome {
  int64_t steps = 0, samples = 0;
  double wall_s = 0;                              ///< from the start of training, not of the process
  std::optional<double> time_to_first_step_s;     ///< from the start of training to the end of the first step, its device work included
  int stopped_by_signal = 0;
  std::optional<EvaluationResult> evaluation;     ///< the last one
  Observations observations;
};

class Trainer {
 public:
  /// `run_dir`: where parts may write; empty for none. `stop_signal`: looked at after each step and between the
  /// batches of an evaluation, which is then dropped; not 0 ends the run there.
  Trainer(Plan plan, std::filesystem::path run_dir, RunListener& listener, const std::atomic<int>& stop_signal);

  /// To the end of the plan, or to a stop. Throws UserError(diverged) at a loss that is not finite, and whatever parts throw;
  /// outcome() then says how far it came.
  void run();

  /// One step, for callers that let trainers take turns.
  void step();
  /// Ends a turn: waits for the device, delivers the rows that are late, and keeps the loader still until the next step().
  void pause();
  bool finished() const;

  /// The state of every part, for another run to read; the model's under torchvision's names.
  void save(ArchiveWriter& archive) const;
  const Model& model() const { return *model_; }
  const Plan& plan() const { return plan_; }
  const RunOutcome& outcome() const { return outcome_; }

 private:
  at::Tensor micro_step(const Batch& micro);
  void update_step();
  void after_step(Record record, bool observed);
  void evaluate();
  void deliver(const std::vector<Row>& rows);
  std::unique_ptr<StepObserver> observe();
  void observe_input(const BatchSourceStats& stats);

  Plan plan_;
  RunListener& listener_;
  const std::atomic<int>& stop_signal_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Precision> precision_;
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<WeightAverage> average_;
  std::unique_ptr<BatchSource> batches_;
  Schedule schedule_;
  LateReader late_;
  ForwardContext training_;
  StepBody body_;
  at::Tensor grad_norm_;                          ///< of the last update; undefined without clipping
  std::optional<int64_t> diverged_at_;
  std::optional<int64_t> evaluated_at_;
  Clock::time_point started_, boundary_;          ///< of training; of the step that comes
  bool paused_ = false;
  RunOutcome outcome_;
};

}  // namespace trainopt
