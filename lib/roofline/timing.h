// Times pieces of work on a device.
#pragma once

#include <c10/core/Device.h>

#include <functional>

namespace trainopt {

struct TimingLimits {
  double seconds = 1;   ///< stop repeating after this time; the work runs at least twice
  double one_s = 0.02;  ///< work that takes less is repeated until one measurement takes this long
};

/// Seconds of one call of `work`: the shortest of several measurements, after one call that is not measured. On a GPU
/// `work` queues work, and the time is the device's.
double shortest_s(c10::Device device, const std::function<void()>& work, const TimingLimits& limits = {});

}  // namespace trainopt
