// Signals are handled by the training thread; helper threads start with them blocked.
#pragma once

#include <csignal>

namespace trainopt {

/// The one signal that helper threads do not block: it asks for their stack (run/watchdog.h).
inline int stack_signal() { return SIGRTMIN + 8; }

/// While the object lives, threads that this thread starts block every signal except stack_signal() and SIGBUS, which
/// is for the thread that read what is not there: blocked, it would end the process (files/mapped_file.h).
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, stack_signal());
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

// A request to stop is a signal's number, or one of these.

/// The run directory's name leads to another folder. Nobody waits for the run to end, so there is no grace period.
inline constexpr int kFolderTaken = 1000;

inline bool is_signal(int request) { return request != 0 && request != kFolderTaken; }

}  // namespace trainopt
