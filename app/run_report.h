// Everything a run leaves behind: console lines, record files, evaluations, telemetry, and the summary, which is written however it ends.
#pragma once

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
  std::string status;      ///< done, failed, stopped
  std::string reason;
  int exit_code = 0;
};

class RunReport : public RunListener {
 public:
  RunReport(const Plan& plan, std::filesystem::path run_dir, bool quiet, bool color);

  void step_done(const Row& row) override;
  void evaluated(int64_t step, const EvaluationResult& result) override;

  /// Writes summary.json, environment.json and, unless quiet, the table. `trainer` is null if it could not be built.
  void finish(const Plan& plan, const Trainer* trainer, const RunEnd& end, double seconds_before_training);

 private:
  Json summary_json(const Plan& plan, const RunOutcome& outcome, const RunEnd& end) const;

  std::filesystem::path run_dir_;
  bool quiet_;
  Sinks sinks_;
  Summary summary_;
  Telemetry telemetry_;
  LineFile evaluations_;
};

}  // namespace trainopt
