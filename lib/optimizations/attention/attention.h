// The implementation of attention: libtorch's choice, or one that the recipe names.
#pragma once

#include "config/describe.h"
#include "device/backend_settings.h"
#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;

template <>
struct Choices<AttentionKernel> {
  static constexpr std::array all = {Choice<AttentionKernel>{"auto", AttentionKernel::automatic},
                                     Choice<AttentionKernel>{"math", AttentionKernel::math},
                                     Choice<AttentionKernel>{"flash", AttentionKernel::flash},
                                     Choice<AttentionKernel>{"efficient", AttentionKernel::efficient},
                                     Choice<AttentionKernel>{"cudnn", AttentionKernel::cudnn}};
};
}  // namespace trainopt

namespace trainopt::attention {

inline constexpr Info kInfo{.name = "attention", .exactness = Exactness::same_math, .tolerance = 1e-2, .off = "math"};

/// `kernel`: not math, which is what a plan has without this.
Outcome apply(Plan& plan, AttentionKernel kernel);

}  // namespace trainopt::attention
