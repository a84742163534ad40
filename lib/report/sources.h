// What a page is made from: run directories, and the folders of comparisons and ablations.
#pragma once

#include "base/json.h"
#include "report/step_records.h"

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

namespace trainopt::report {

// A run directory, read for a page. Whatever is missing or damaged is left out and noted; only a folder that is not a
// run directory is an error.

/// One column of a file over time or steps.
struct NamedColumns {
  std::string name;
  Columns columns;
};

struct RunFolder {
  std::filesystem::path path;
  Json summary, plan, environment, recipe, profile;  ///< null: not there, or not readable
  StepRecords steps;
  std::vector<NamedColumns> evaluations;  ///< loss, top1_pct, …, by step
  std::vector<NamedColumns> telemetry;    ///< by seconds since its beginning
  std::vector<NamedColumns> rank_ms;      ///< each rank's own time in a step, by step; empty with one rank
  std::vector<std::string> messages;      ///< the last lines of run.log
  std::vector<std::string> notes;         ///< what was left out, and why

  /// False: the run goes on, or was killed before it could write its summary.
  bool ended() const { return !summary.is_null(); }
  /// The last step that is not measured: 0 if all are.
  int64_t warmup_end() const;
  /// Processes that train: `trainopt launch -n` of a command that repeats this run; 1 if not known.
  int64_t ranks() const;
  /// The recipe's name, or the folder's.
  std::string name() const;
};

/// `columns`: of each series that is drawn. Throws UserError(data) if the folder has neither a summary nor records.
RunFolder read_run(const std::filesystem::path& path, size_t columns);
/// The folder's own name, also of "runs/job/" and ".".
std::string folder_name(const std::filesystem::path& path);

/// Whether the folder looks like a run directory.
bool is_run(const std::filesystem::path& path);

/// The value at "step_ms.p50" or "units.0.name"; null if it is not there.
const Json& at(const Json& json, std::string_view path);

enum class ResultKind { comparison, several_arms, against, ablation, rate_range };

/// The folder of compare, ablate or find lr. `result` is what compare/output/*_json.h and ablation_report.h,
/// compare/against.h and app/commands/find_lr.cpp write.
struct ResultFolder {
  std::filesystem::path path;
  ResultKind kind = ResultKind::comparison;
  Json result, environment;
  std::vector<std::string> notes;
};

/// A folder with a run directory for each rung, in the order of their names (numbers by value): scripts/sweep --ladder.
struct LadderFolder {
  struct Rung {
    RunFolder run;
    Json against_previous;  ///< the comparison with the rung before; null for the first and for one without a verdict
  };
  std::filesystem::path path;
  std::vector<Rung> rungs;
};

using Source = std::variant<RunFolder, ResultFolder, LadderFolder>;

/// Throws UserError(data) for a folder that is none of these, such as the result of tune, and says what it is.
std::vector<Source> read_sources(const std::vector<std::filesystem::path>& folders);

/// What a page about these folders shows, as numbers: {schema_version, folders: [{folder, kind, …}]}, where a run has
/// its `summary`, null before its end, a ladder its `rungs`, and any other its `result`.
Json to_json(const std::vector<Source>& sources);

}  // namespace trainopt::report
