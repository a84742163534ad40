// All output of a run: console lines, record files, evaluations, telemetry, and the summary, which is written however
// the run ends.
#pragma once

#include "base/json.h"
#include "metrics/hardware/gpu_probe.h"
#include "metrics/hardware/telemetry.h"
#include "metrics/sinks.h"
#include "metrics/step_statistics.h"
#include "metrics/summary.h"
#include "recipe/recipe.h"
#include "run/environment.h"
#include "run/explain.h"
#include "train/plan.h"
#include "train/trainer.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

// How a run ended, and what it took to reach train.target.

struct RunEnd {
  std::string status;  ///< done, failed, stopped
  std::string reason;
  int exit_code = 0;
};

/// Throws UserError(diverged) if float16's loss scale skipped the update of every measured step of this process, unless
/// the user stopped the run.
void require_updates(const RunOutcome& outcome, const Plan& plan);

/// The end of a run that did not fail. `saved_step` is the step of the newest checkpoint on disk; `restarts`: how often
/// the launcher has started all ranks again.
RunEnd end_of_run(const RunOutcome& outcome, const Plan& plan, const std::optional<int64_t>& saved_step,
                  int64_t restarts);

/// {"metric", "goal", "value", "reached", "step", "samples", "training_s", "resolution_steps", "energy_j", "price"}, of
/// the whole training, without evaluations. If the target was not reached, what was spent in vain. Null without a
/// target. `samples_per_joule`: of the measured steps and what comes between them, evaluations too; null if unknown.
Json target_json(const RunOutcome& outcome, const Plan& plan, const Json& samples_per_joule);

/// The state of the records in a run directory that is resumed.
struct RecordsSoFar {
  int64_t step = 0;  ///< the checkpoint's; later records are removed
  int64_t evaluated_at = 0;
  std::optional<double> first_loss;

  static RecordsSoFar of(const ArchiveReader& archive);
};

/// Until open(), and on ranks other than rank 0, events are ignored and only `progress` is called.
class RunReport : public RunListener {
 public:
  /// `progress` is called by at(), with the same arguments.
  RunReport(const Plan& plan, std::filesystem::path run_dir, const OutputOptions& output,
            std::function<void(const char*, int64_t)> progress);

  /// Throws UserError(storage) if a record file is a symbolic link, before anything is changed.
  static void refuse_links(const std::filesystem::path& run_dir);
  /// Opens the record files. `so_far` describes the records of an existing run directory; null for a new one.
  /// `energy_gpus` are the PCI bus ids of the GPUs whose energy is measured; empty: only this rank's.
  void open(const std::optional<RecordsSoFar>& so_far, const Recipe& recipe,
            const std::vector<std::string>& energy_gpus);

  void step_done(const StepRecord& row) override;
  void evaluated(int64_t step, const EvaluationResult& result) override;
  void not_finite(const NonfiniteStep& event) override;
  void save(ArchiveWriter& archive) override;
  void at(const char* stage, int64_t steps) override { progress_(stage, steps); }
  /// Syncs the records to disk. Whoever writes a checkpoint calls this before completing it.
  static void sync_records(const std::filesystem::path& run_dir);

  /// Writes summary.json, environment.json, step_times.csv, bad_samples.jsonl if there are any and, unless quiet, the
  /// table. `trainer` is null if it could not be built; `bad_samples` are those of all ranks, as to_json() writes them.
  void finish(const Trainer* trainer, const Json& bad_samples, const RunEnd& end, double seconds_before_training);
  /// Writes what finish() does, for a run that failed. Throws nothing: the user must see what ended the run even if the
  /// summary cannot be written.
  void finish_failed(const Trainer* trainer, const Explained& failure, double seconds_before_training);

 private:
  struct Records {
    Records(const Plan& plan, const std::filesystem::path& run_dir, const OutputOptions& output, int64_t resumed_after,
            const std::vector<std::string>& energy_gpus);

    Sinks sinks;
    Summary summary;
    Telemetry telemetry;
    LineFile evaluations;
    LossSpikes spikes;
  };
  Json summary_json(const RunOutcome& outcome, const RunEnd& end) const;
  void warn_of_spike(const StepRecord& row);
  void write_step_times() const;
  void write_bad_samples(const Json& bad_samples) const;
  /// Returns the summary.
  Json write_files(const RunOutcome& outcome, const Json& bad_samples, const RunEnd& end);
  void print_end(const RunOutcome& outcome, const RunEnd& end);
  /// One line.
  void print_result(const Json& summary, const RunOutcome& outcome, const RunEnd& end) const;
  void print_json_result(const Json& summary) const;

  const Plan& plan_;
  Recipe recipe_;  ///< set by open()
  std::filesystem::path run_dir_;
  OutputOptions output_;
  std::function<void(const char*, int64_t)> progress_;
  std::optional<Records> records_;
  double records_s_ = 0;  ///< time taken by step_done()
};

}  // namespace trainopt
