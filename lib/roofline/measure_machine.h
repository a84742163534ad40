// Measures the peaks of this process's device and machine.
#pragma once

#include "roofline/roofline.h"

#include <c10/core/Device.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace trainopt {

/// The key of this machine and these libraries. `program`: this program's version.
RooflineKey roofline_key(c10::Device device, const std::string& program);

struct MeasureMachine {
  std::filesystem::path disk_folder;  ///< must exist; a file is written here and removed
  double seconds = 2;                 ///< about so long for each peak
  /// Called with what is measured next; may be empty.
  std::function<void(const std::string&)> progress = {};
  const std::atomic<int>* stop = nullptr;  ///< once it is a signal's number, nothing more is measured
};

/// Everything but the exchanges. Memory that is not there, such as for a large copy, is not asked for. nullopt: it was
/// stopped before the end.
std::optional<Roofline> measure_machine(c10::Device device, const RooflineKey& key, const MeasureMachine& options);

// Times pieces of work on a device.

struct TimingLimits {
  double seconds = 1;   ///< stop repeating after this time; the work runs at least twice
  double one_s = 0.02;  ///< work that takes less is repeated until one measurement takes this long
};

/// Seconds of one call of `work`: the shortest of several measurements, after one call that is not measured. On a GPU
/// `work` queues work, and the time is the device's.
double shortest_s(c10::Device device, const std::function<void()>& work, const TimingLimits& limits = {});

}  // namespace trainopt
