// Finds the hidden waits of whatever runs during its lifetime: `debug.find_syncs`.
#pragma once

#include "train/hidden_waits.h"

#include <c10/core/Device.h>

#include <memory>

namespace trainopt {

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
