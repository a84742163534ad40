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

/// Of this machine and these libraries. `program`: this program's version.
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

}  // namespace trainopt
