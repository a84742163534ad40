// Gradients are dropped after an update: no fill with zeros, and the first backward writes instead of adding.
#pragma once

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::set_to_none {

Outcome apply(Plan& plan);

}  // namespace trainopt::set_to_none
