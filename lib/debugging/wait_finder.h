// Finds the hidden waits of whatever runs during its lifetime: `debug.find_syncs`.
#pragma once

#include "base/json.h"
#include "train/observe/step_trace.h"

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

// Hidden waits: operations of a step in which the host waits for the device, or copies in a way that it need not.

/// A copy between a host and a GPU.
struct HostCopy {
  bool to_host = false;       ///< otherwise to the GPU
  bool pinned = false;        ///< the host's memory is page-locked
  bool non_blocking = false;  ///< as the caller asked
};
/// Why the copy waits; empty: it does not. As cudaMemcpyAsync (CUDA's "API synchronization behavior") and libtorch's
/// Tensor::copy_ behave.
std::string_view why_copying_waits(const HostCopy& copy);

/// For the end of a run: a heading and a line for each, or one line if there are none. `on_cpu`: of a CPU, where no
/// operation waits; the list then shows those that would on a GPU.
std::string hidden_waits_text(const std::vector<HiddenWait>& waits, int64_t step, bool on_cpu);
/// As in summary.json: [{operation, where, unit, calls, ms, why}].
Json hidden_waits_json(const std::vector<HiddenWait>& waits);

struct Plan;
class Listening;
class SyncReports;

/// Listens on this thread and on the backward threads that it starts. On a GPU libtorch's own reports of waits count
/// too, so that nothing depends on the list of operations being complete.
class WaitFinder {
 public:
  explicit WaitFinder(c10::Device device);
  ~WaitFinder();

  /// So far, in the order in which each was first seen.
  std::vector<HiddenWait> found() const;

 private:
  class Listener;
  std::shared_ptr<Listener> listener_;
  std::unique_ptr<SyncReports> reports_;  ///< null on a CPU
  std::unique_ptr<Listening> listening_;
};

/// Labels the model's units, and finds the hidden waits of the step that is observed for receipts.
void add_find_syncs(Plan& plan);

}  // namespace trainopt
