// What a long command is doing: on a terminal a line at the bottom, elsewhere a line every ten seconds.
#pragma once

#include "base/clock.h"
#include "run/environment.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace trainopt {

/// Shows it from its creation to its end, on standard error, unless the output is quiet or not even says what is
/// normal. A signal that asks for a stop is acknowledged meanwhile.
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
  /// A line that stays, of the command's results: on standard output.
  void print(const std::string& text);

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

/// After a signal: "to measure it again: trainopt compare …". Otherwise nothing.
void say_again(const OutputOptions& output);

}  // namespace trainopt
