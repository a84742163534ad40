// Images are copied to the device as uint8, a quarter of float32's bytes; scaling and normalisation (and, on request,
// resizing) happen there.
#pragma once

#include "config/describe.h"
#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::device_preprocess {

inline constexpr Info kInfo{"device_preprocess", Exactness::same_bits, /*tolerance=*/0, /*in_every_recipe=*/false};

struct Config {
  bool resize = false;
};
template <class V>
void describe(V& v, Config& c) {
  v.field("resize", c.resize, "Also run the resize and all later transforms on the device; needs images of one size.");
}

Outcome apply(Plan& plan, const Config& config);

}  // namespace trainopt::device_preprocess
