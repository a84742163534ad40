// What limited a run, and what would help, from what it measured.
#pragma once

#include "metrics/summary.h"
#include "run/limit.h"
#include "run/rules.h"
#include "train/run_outcome.h"

#include <filesystem>
#include <optional>
#include <vector>

namespace trainopt {

struct RunDiagnosis {
  Limit limit;
  std::vector<Proposal> proposals;  ///< the most promising first
};

/// nullopt if no step was measured. `records_s`: time that the trainer waited for records to be written.
std::optional<RunDiagnosis> diagnose(const Recipe& recipe, const Plan& plan, const RunOutcome& outcome,
                                     const Summary& summary, double records_s);

/// {limit: …, candidates: [{what, change, from, estimated_ratio, exactness, evidence, needs, command}], advice: [those
/// with an estimated gain above the noise]}. Commands name the run's recipe.yaml and start as many ranks as the run
/// had.
Json to_json(const std::optional<RunDiagnosis>& diagnosis, const std::filesystem::path& run_dir, const Plan& plan);
/// The diagnosis as lines of the table at the end of a run.
std::vector<SwitchLine> lines_of(const std::optional<RunDiagnosis>& diagnosis, const std::filesystem::path& run_dir,
                                 const Plan& plan);

}  // namespace trainopt
