// What the devices waited for, how fast they copied, and how much of the exchange was hidden by compute.
#pragma once

#include "trace/events.h"
#include "trace/intervals.h"
#include "trace/kernels.h"
#include "trace/steps.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt::trace {

/// Why no compute kernel ran at an instant between two of them (README.md, "Device").
enum class IdleCause : uint8_t { exchange, copy, host, launch, unknown };
constexpr size_t kIdleCauses = 5;
constexpr std::array<std::string_view, kIdleCauses> kIdleCauseNames = {"exchange", "copy", "host", "launch", "unknown"};

struct CopySpeed {
  std::string direction;  ///< "HtoD", "DtoH", "DtoD", "PtoP", "other"
  int64_t calls = 0, bytes = 0, ns = 0;
};

/// Sums over the devices of a rank.
struct DeviceTime {
  int64_t span_ns = 0;  ///< time from the start of a device's first compute kernel to the end of its last
  int64_t busy_ns = 0;  ///< time in which at least one compute kernel ran
  std::array<int64_t, kIdleCauses> idle_ns{};  ///< with busy_ns, adds up to span_ns
  int64_t gaps = 0;
  std::vector<CopySpeed> copies;  ///< in alphabetical order of their directions

  int64_t idle(IdleCause cause) const { return idle_ns[static_cast<size_t>(cause)]; }
  /// Idle because of the CPU: it had launched nothing, or not early enough.
  int64_t launch_bound_ns() const { return idle(IdleCause::host) + idle(IdleCause::launch); }
};

/// Measures the device events launched within `scope`.
DeviceTime measure_devices(const RankTrace& trace, const Launches& launches, Interval scope);

struct Exchange {
  int64_t ns = 0;                ///< time in which at least one exchange is under way
  int64_t under_compute_ns = 0;  ///< the part in which computing goes on
};

/// Measures within the steps, so the exchange is part of their wall time. On a device: NCCL's kernels under other
/// kernels. Without NCCL kernels: communication ranges on any thread under operations that a thread of the step runs
/// outside of such ranges.
Exchange measure_exchange(const RankTrace& trace, const Steps& steps);

// Where the wall time of a step went: each instant belongs to the first category, in this order, that is active then.

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
