// The machine and versions behind a result.
#pragma once

#include "report/figures.h"

namespace trainopt::report {

/// From environment.json; empty if it is not there.
Html environment_facts(const Figures& environment);

}  // namespace trainopt::report
