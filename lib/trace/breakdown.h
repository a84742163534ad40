// Where the wall time of a step went: each instant belongs to the first category, in this order, that is active then.
#pragma once

#include "trace/events.h"
#include "trace/steps.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace trainopt::trace {

enum class Category : uint8_t { kernel, copy, fill, communication, runtime, loader, cpu, other };
constexpr size_t kCategories = 8;
/// The names in JSON, in the order of priority. README.md defines them.
constexpr std::array<std::string_view, kCategories> kCategoryNames = {"kernel",  "memcpy", "memset", "communication",
                                                                      "runtime", "loader", "cpu",    "other"};

struct Breakdown {
  int64_t wall_ns = 0;
  std::array<int64_t, kCategories> ns{};  ///< adds up to wall_ns
};

/// When each category except `other` is active, whatever else is.
std::array<Intervals, kCategories> active_times(const RankTrace& trace, const Steps& steps);

Breakdown break_down(const std::array<Intervals, kCategories>& active, Interval window);

}  // namespace trainopt::trace
