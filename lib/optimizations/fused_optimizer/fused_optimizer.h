// One operation updates all parameters: torch's fused SGD, Adam and AdamW.
#pragma once

namespace trainopt {
struct Plan;
struct Outcome;
}

namespace trainopt::fused_optimizer {

Outcome apply(Plan& plan);

}  // namespace trainopt::fused_optimizer
