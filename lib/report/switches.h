// What each switch did, as a list.
#pragma once

#include "report/figures.h"

namespace trainopt::report {

/// One item of such a list: a receipt whose figure `observed` says what was seen.
Html switch_item(const Figures& receipt, std::string_view name, const char* observed);
/// From receipts as in summary.json.
Html switch_list(const Figures& receipts);

}  // namespace trainopt::report
