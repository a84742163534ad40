// Forwards complete lines from a pipe to one of this process's streams, each with a prefix, so that lines of several
// processes do not interleave.
#pragma once

#include <string>

namespace trainopt {

class LineRelay {
 public:
  /// Takes ownership of the descriptor `from`, which must be non-blocking.
  LineRelay(int from, int to, std::string prefix) : from_(from), to_(to), prefix_(std::move(prefix)) {}
  ~LineRelay();
  LineRelay(LineRelay&& other) noexcept;
  LineRelay& operator=(LineRelay&&) = delete;

  /// The pipe's descriptor; -1 once the other end is closed.
  int descriptor() const { return from_; }
  int stream() const { return to_; }
  /// Whether the output stream accepts no more for now. Until it does, nothing is read, so writers to the pipe
  /// eventually block.
  bool stalled() const { return !queued_.empty(); }
  /// Forwards the complete lines that have arrived and, at end of file, an unfinished last line. Never blocks. Returns
  /// whether nothing is left to do.
  bool pump();
  /// Discards what the output stream has not accepted.
  void drop() { queued_.clear(); }
  /// Forwards what has been read, complete or not, and closes the pipe.
  void finish();

 private:
  void queue_lines(bool all);
  void write_queued();

  int from_, to_;
  std::string prefix_, partial_, queued_;  // queued_: prefixed lines to write
};

}  // namespace trainopt
