// Everything a run leaves behind: console lines, record files, evaluations, telemetry, and the summary, which is
// written however it ends.
#pragma once

#include "metrics/loss_spikes.h"
#include "metrics/sinks.h"
#include "metrics/summary.h"
#include "metrics/telemetry.h"
#include "train/trainer.h"

#include <filesystem>
#include <optional>
#include <string>

namespace trainopt {

/// How a run ended.
struct RunEnd {
  std::string status;  ///< done, failed, stopped
  std::string reason;
  int exit_code = 0;
};

/// Where the records of a run directory stand that a run goes on in.
struct RecordsSoFar {
  int64_t step = 0;  ///< of the checkpoint; what was recorded after it goes
  int64_t evaluated_at = 0;
  std::optional<double> first_loss;

  static RecordsSoFar of(const ArchiveReader& archive);
};

class RunReport : public RunListener {
 public:
  /// `so_far`: of a run directory that has records already, which go on from there; null for a new one.
  RunReport(const Plan& plan, std::filesystem::path run_dir, const std::optional<RecordsSoFar>& so_far, bool quiet,
            bool color);

  void step_done(const StepRecord& row) override;
  void evaluated(int64_t step, const EvaluationResult& result) override;
  void not_finite(const NonfiniteStep& event) override;
  void save(ArchiveWriter& archive) override;
  /// Brings the records to the disk; called before a checkpoint is complete, by whoever writes it.
  static void sync_records(const std::filesystem::path& run_dir);

  /// Writes summary.json, environment.json, bad_samples.jsonl if there are any and, unless quiet, the table. `trainer`
  /// is null if it could not be built; `bad_samples`: of all ranks, as to_json() writes them.
  void finish(const Plan& plan, const Trainer* trainer, const Json& bad_samples, const RunEnd& end,
              double seconds_before_training);

 private:
  Json summary_json(const Plan& plan, const RunOutcome& outcome, const RunEnd& end) const;
  void warn_of_spike(const StepRecord& row);
  void write_bad_samples(const Json& bad_samples) const;

  std::filesystem::path run_dir_;
  bool quiet_;
  Sinks sinks_;
  Summary summary_;
  Telemetry telemetry_;
  LineFile evaluations_;
  LossSpikes spikes_;
};

}  // namespace trainopt
