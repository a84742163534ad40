#include "roofline/timing.h"

#include "device/device.h"
#include "device/stream.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainopt {
namespace {

constexpr int kMeasurements = 10;

double seconds_of(c10::Device device, const std::function<void()>& work, int64_t times) {
  EventSpan span(device);
  const Stream stream = Stream::current(device);
  span.start.record(stream);
  for (int64_t i = 0; i < times; ++i) work();
  span.end.record(stream);
  span.end.synchronize();
  return elapsed_ms(span.start, span.end) / 1e3;
}

}  // namespace

double shortest_s(c10::Device device, const std::function<void()>& work, const TimingLimits& limits) {
  work();
  synchronize(device);
  const auto until = after(limits.seconds);
  double shortest = std::max(seconds_of(device, work, 1), 1e-9);
  const auto times = std::max<int64_t>(1, std::llround(std::min(1e6, limits.one_s / shortest)));
  for (int i = 0; i < kMeasurements && (i == 0 || Clock::now() < until); ++i)
    shortest = std::min(shortest, seconds_of(device, work, times) / static_cast<double>(times));
  return shortest;
}

}  // namespace trainopt
