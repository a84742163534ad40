// One rank as a child process.
#pragma once

#include "comm/line_relay.h"
#include "comm/local_ranks.h"

#include <csignal>
#include <optional>

#include <sys/types.h>

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

}  // namespace trainopt
