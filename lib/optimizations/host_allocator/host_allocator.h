// CPU tensors from memory that is kept between steps instead of going back to the kernel. A setting of the process.
#pragma once

#include "config/describe.h"
#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::host_allocator {

inline constexpr Info kInfo{"host_allocator", Exactness::same_bits};

struct Config {
  bool huge_pages = true;
};
template <class V>
void describe(V& v, Config& c) {
  v.field("huge_pages", c.huge_pages, "Ask the kernel for 2 MiB pages.");
}

Outcome apply(Plan& plan, const Config& config);

}  // namespace trainopt::host_allocator
