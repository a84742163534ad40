// Whole lines from a pipe to one of our own streams, each with a prefix, so that the lines of several processes do not mix.
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

  /// -1 once the other end is closed and all of it was passed on.
  int descriptor() const { return from_; }
  /// Passes on what has come, as far as lines are whole; at the end, the last one too.
  void pump();
  /// Passes on what has come, whole or not, and listens no more.
  void finish();

 private:
  void pass_on(bool all);

  int from_, to_;
  std::string prefix_, waiting_;
};

/// All of it, whatever the descriptor needs; false if nobody takes it any more.
bool write_all(int to, std::string_view text);

}  // namespace trainopt
