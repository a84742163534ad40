// The first screen: how fast, what limits it, which switches did what, and what to try.
#pragma once

#include "report/sources.h"
#include "report/run_sections.h"

namespace trainopt::report {

Html headline(const RunFolder& run, const Place& place);
Html headline(const ResultFolder& folder, const Place& place);
Html headline(const LadderFolder& ladder, const Place& place);

/// What could not be read, as warnings.
Html notes(const std::vector<std::string>& notes);

}  // namespace trainopt::report
