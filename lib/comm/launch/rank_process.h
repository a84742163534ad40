// One rank as a child process.
#pragma once

#include "comm/launch/local_ranks.h"

#include <sys/types.h>

#include <csignal>
#include <optional>

namespace trainopt {

/// The destructor kills the process and its process group if it is still running.
class RankProcess {
 public:
  /// Starts the process with `mask` as its signal mask, and with USR1 and USR2 blocked until it handles them: before,
  /// they would end it. Throws UserError if it cannot be started.
  RankProcess(const LocalRanks& spec, int local_rank, const sigset_t& mask);
  ~RankProcess();
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;

  int rank() const { return rank_; }
  bool running() const { return process_ > 0; }
  /// The status from waitpid(), once, after the process has ended.
  std::optional<int> reap();
  void signal(int number) const;
  /// Also signals the processes that it started.
  void signal_group(int number) const;
  LineRelay& output() { return *output_; }
  LineRelay& errors() { return *errors_; }

 private:
  int rank_;
  std::optional<LineRelay> output_, errors_;  // always set after construction
  pid_t process_ = -1;
};

// While the object lives, signals are queued to be read instead of interrupting the process.

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
