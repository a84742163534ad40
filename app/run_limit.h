// What limited a run, and what would help, from what it measured.
#pragma once

#include "advice/limit.h"
#include "advice/rules.h"
#include "metrics/summary.h"
#include "train/trainer.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct RunDiagnosis {
  Limit limit;
  std::vector<Proposal> advice;  ///< at most three
};

/// nullopt if no step was measured. `records_s`: time that the trainer waited for records to be written.
std::optional<RunDiagnosis> diagnose(const Recipe& recipe, const Plan& plan, const RunOutcome& outcome,
                                     const Summary& summary, double records_s);

/// "trainopt compare runs/job/recipe.yaml --with data.num_workers=2", started as the run was.
std::string command_for(const Proposal& proposal, const std::filesystem::path& run_dir, int64_t ranks);
/// {what, change, estimated_ratio, exactness, evidence, command}
Json to_json(const Proposal& proposal, const std::filesystem::path& run_dir, int64_t ranks);
/// "estimated +35 %: …; measure it: trainopt compare …"
std::string text_of(const Proposal& proposal, const std::filesystem::path& run_dir, int64_t ranks);

}  // namespace trainopt
