// One rank as a child process.
#pragma once

#include "comm/line_relay.h"
#include "comm/local_ranks.h"

#include <csignal>
#include <optional>

#include <sys/types.h>

namespace trainopt {

/// Kills the process, and what it started in its group, if it has not ended when the object does.
class RankProcess {
 public:
  /// The process starts with `mask` as its blocked signals. Throws UserError if it cannot be started.
  RankProcess(const LocalRanks& spec, int local_rank, const sigset_t& mask);
  ~RankProcess();
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;

  int rank() const { return rank_; }
  bool running() const { return process_ > 0; }
  /// What waitpid() tells of it; once, when it has ended.
  std::optional<int> reap();
  void signal(int number) const;
  /// To what it started, too.
  void signal_group(int number) const;
  LineRelay& output() { return *output_; }
  LineRelay& errors() { return *errors_; }

 private:
  int rank_;
  std::optional<LineRelay> output_, errors_;  // always there once it was started
  pid_t process_ = -1;
};

}  // namespace trainopt
