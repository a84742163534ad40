// Several runs on one page: the same figures and charts for all of them.
#pragma once

#include "report/page.h"
#include "report/run_folder.h"

#include <string>
#include <vector>

namespace trainopt::report {

struct NamedRun {
  const RunFolder* run;
  std::string name;                        ///< unique on the page
  std::string keys;                        ///< before each data-key: "2."
  const Json* against_previous = nullptr;  ///< the comparison with the run before; null: none
};

/// A row for each run: how fast, what it waited for, how it ended.
Html runs_table(const std::vector<NamedRun>& runs);
/// The switches with an effect in each run.
Html switches_of_runs(const std::vector<NamedRun>& runs);
/// Bars of throughput, lines of throughput and loss, and how each recipe differs from the one before (or the first).
std::vector<Section> side_by_side(const std::vector<NamedRun>& runs, bool against_previous);

}  // namespace trainopt::report
