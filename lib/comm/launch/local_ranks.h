// Starts the ranks of one machine as processes and supervises them until the last one has ended.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace trainopt {

struct LocalRanks {
  int count = 1;                       ///< ranks on this machine; the same on every machine
  int nodes = 1, node_rank = 0;        ///< number of machines, and this one's index
  std::string master_address;          ///< empty, only on one machine: 127.0.0.1 and a free port
  int master_port = 0;                 ///< restart r uses master_port + r, where no rank of an earlier attempt listens
  int restarts = 0, max_restarts = 0;  ///< how often all ranks have been started again, and may be
  std::vector<std::string> command;    ///< the first word is the program's path
  bool bare_output = false;            ///< standard output is for a program, so its lines get no rank in front
  std::map<std::string, std::string> environment;  ///< complete; each rank's own variables override it
  double term_delay_s = 15;                        ///< between the first failure and SIGTERM to the others
  double grace_s = 5;                              ///< between SIGTERM and SIGKILL
};

/// If a rank is killed or lost (7), all ranks are started again, at most `max_restarts` times; they learn from
/// torchrun's TORCHELASTIC_RESTART_COUNT how often that was. Not after another failure, which would repeat, nor after a
/// signal. Returns the exit code: 0 if all ranks ended with 0; the code of the first rank that failed, 7 if a signal
/// killed it; 128 + n if the ranks were stopped by a forwarded signal n (INT, TERM, HUP, USR1, USR2). Names a failed
/// rank on standard error. If the program cannot be started, throws UserError and leaves no process behind. Signals
/// must reach this thread, so no other thread may be running.
int run_local_ranks(const LocalRanks& spec);

/// A TCP port of 127.0.0.1 that was free a moment ago. If another process takes it before rank 0 does, rank 0 reports
/// it.
int free_local_port();

// Forwards complete lines from a pipe to one of this process's streams, each with a prefix, so that lines of several
// processes do not interleave.

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
