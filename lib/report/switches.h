// What each switch did, as a list.
#pragma once

#include "report/figures.h"

namespace trainopt::report {

/// From receipts as in summary.json.
Html switch_list(const Figures& receipts);

}  // namespace trainopt::report
