// The first screen: how fast, what limits it, which switches did what, and what to try.
#pragma once

#include "report/sources.h"
#include "report/run_sections.h"

namespace trainopt::report {

/// `running`: a process still writes to the folder.
Html headline(const RunFolder& run, const Place& place, bool running);
Html headline(const ResultFolder& folder, const Place& place);

/// What limits a run, and what to try.
Html limits(const RunFolder& run, const Place& place);
Html advice(const RunFolder& run);
/// What could not be read, as warnings; `from` names the folder on a page with several.
Html notes(const std::vector<std::string>& notes, const std::string& from = {});

}  // namespace trainopt::report
