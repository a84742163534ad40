// CPU tensors from a caching allocator, which keeps freed memory instead of returning it to the kernel. The setting is
// process-wide.
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
