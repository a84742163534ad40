// While the object lives, signals are queued to be read instead of interrupting the process.
#pragma once

#include <csignal>
#include <optional>

namespace trainopt {

class QueuedSignals {
 public:
  /// Holds the signals that are forwarded to ranks, and SIGCHLD. A SIGHUP that is ignored (nohup) stays ignored.
  /// SIGPIPE is ignored while the object lives.
  QueuedSignals();
  ~QueuedSignals();
  QueuedSignals(const QueuedSignals&) = delete;
  QueuedSignals& operator=(const QueuedSignals&) = delete;

  /// Becomes readable when a signal is pending.
  int descriptor() const { return descriptor_; }
  std::optional<int> next();
  /// The signal mask before construction.
  const sigset_t& mask_before() const { return mask_before_; }

 private:
  int descriptor_ = -1;
  sigset_t mask_before_;
  struct sigaction child_before_, pipe_before_;
};

}  // namespace trainopt
