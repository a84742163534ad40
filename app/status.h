// What a long command is doing: on a terminal a line at the bottom, elsewhere a line every ten seconds.
#pragma once

#include "base/clock.h"
#include "run/environment.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace trainopt {

/// Shows it from its creation to its end, on standard error, unless --quiet or --log-level hides information. A signal
/// that asks for a stop is acknowledged meanwhile.
class Status {
 public:
  /// `limit_s`: time for the whole command; nullopt: it ends when all is done.
  explicit Status(const OutputOptions& output, std::optional<double> limit_s = {});
  ~Status();
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  /// What is being done from now on.
  void now(const std::string& what);
  /// A line that stays, which is also what is being done.
  void line(const std::string& text);

 private:
  void show_until_ended();
  std::string text() const;

  const bool shown_, on_terminal_;
  const std::optional<double> limit_s_;
  const Clock::time_point began_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_ = "starting";
  bool ended_ = false, redraw_ = false;
  std::thread thread_;  ///< the last member, because it uses the others
};

/// The command line of this process without some of the options, each with its value, and with more: "trainopt
/// compare …", or with several ranks "trainopt launch -n 2 -- compare …". Of another launcher's ranks it is what the
/// launcher starts.
std::string this_command(const OutputOptions& output, const std::vector<std::string>& without = {},
                         const std::vector<std::string>& more = {});
/// After a signal: "to measure it again: trainopt compare …". Otherwise nothing.
void say_again(const OutputOptions& output);

}  // namespace trainopt
