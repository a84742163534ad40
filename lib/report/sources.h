// What a page is made from: run directories, and the folders of comparisons and ablations.
#pragma once

#include "report/run_folder.h"

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

namespace trainopt::report {

enum class ResultKind { comparison, rotation, against, ablation, rate_range };

/// The folder of compare, ablate or find lr. `result` is what compare/*_json.h and app/commands/find_lr.cpp write.
struct ResultFolder {
  std::filesystem::path path;
  ResultKind kind = ResultKind::comparison;
  Json result, environment;
  std::vector<std::string> notes;
};

/// A folder with a run directory for each rung, in the order of their names (numbers by value): scripts/ladder.sh.
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

/// "10-all" after "2a-pin-memory".
bool before_by_number(std::string_view left, std::string_view right);

}  // namespace trainopt::report
