// libtorch's own reports of calls in which the host waits for a GPU (in Python: torch.cuda.set_sync_debug_mode).
#pragma once

#include <c10/util/Exception.h>

#include <functional>
#include <memory>

namespace trainopt {

/// Calls a function for each such call on this thread during its lifetime. The mode is the whole process's: on other
/// threads libtorch then prints a warning. Explicit waits for an event or the whole device are not reported. Without
/// libtrainopt_cuda.so nothing is.
class SyncReports {
 public:
  explicit SyncReports(std::function<void()> on_report);
  ~SyncReports();
  SyncReports(const SyncReports&) = delete;
  SyncReports& operator=(const SyncReports&) = delete;

  /// Extends the reports, for a scope, to another thread, or to where libtorch has put a handler of its own.
  class OnThread {
   public:
    explicit OnThread(const SyncReports& reports);

   private:
    c10::WarningUtils::WarningHandlerGuard guard_;
  };

 private:
  class Handler;
  std::unique_ptr<Handler> handler_;
  c10::WarningUtils::WarningHandlerGuard guard_;
  bool were_on_;
};

/// Turns libtorch's reports, which are warnings, on or off for the process. Returns whether they were on.
bool set_sync_warnings(bool on);

}  // namespace trainopt
