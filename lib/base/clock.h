// The monotonic clock that all measurements use.
#pragma once

#include <chrono>

namespace trainopt {

using Clock = std::chrono::steady_clock;

inline double milliseconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}
/// The time point `seconds` from now.
inline Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}
inline double seconds_since(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

}  // namespace trainopt
