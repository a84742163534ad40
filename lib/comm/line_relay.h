// Whole lines from a pipe to one of our own streams, each with a prefix, so that the lines of several processes do not
// mix.
#pragma once

#include <string>

namespace trainopt {

class LineRelay {
 public:
  /// Takes the descriptor `from`, which must not block, and closes it in the end.
  LineRelay(int from, int to, std::string prefix) : from_(from), to_(to), prefix_(std::move(prefix)) {}
  ~LineRelay();
  LineRelay(LineRelay&& other) noexcept;
  LineRelay& operator=(LineRelay&&) = delete;

  /// -1 once the other end is closed.
  int descriptor() const { return from_; }
  int stream() const { return to_; }
  /// Our stream takes no more for now: until it does, nothing is read, and who writes to the pipe waits in the end.
  bool stalled() const { return !leaving_.empty(); }
  /// Passes on what has come, as far as lines are whole; at the end, the last one too. Never waits. Whether nothing is
  /// left to do for now.
  bool pump();
  /// Gives up what our stream does not take.
  void drop() { leaving_.clear(); }
  /// Takes what has come, whole or not, and listens no more.
  void finish();

 private:
  void pass_on(bool all);
  void leave();

  int from_, to_;
  std::string prefix_, waiting_, leaving_;  // leaving_: whole lines on their way out
};

}  // namespace trainopt
