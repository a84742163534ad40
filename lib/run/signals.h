// SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask for a stop after the current step; a second SIGINT or SIGTERM that comes more
// than 0.1 s later ends the process at once. A SIGHUP that is ignored (nohup) stays ignored. SIGUSR2 asks for a
// checkpoint.
#pragma once

#include <atomic>

namespace trainopt {

/// 0 until a stop is asked for, then the signal's number or a reason of base/signals.h.
const std::atomic<int>& stop_signal();
/// Asks for a stop for this reason of base/signals.h, unless one has been asked for.
void request_stop(int reason);
/// From now on, the first signal that asks for a stop writes this text to standard error, at once; null: nothing. It
/// must live as long as the process.
void acknowledge_stop(const char* text);
/// Set by SIGUSR2; cleared by whoever saves the checkpoint.
std::atomic<bool>& save_request();
/// Handles these signals from now on, and lets in SIGUSR1 and SIGUSR2, which a launcher held back.
void handle_signals();
/// Handles only SIGUSR2 (and ignores SIGPIPE and SIGXFSZ). There is nothing to save yet, so a signal that asks for a
/// stop ends the process at once, also as a container's process 1.
void handle_signals_at_start();
/// Opens /dev/null for standard streams that the caller closed. Call first: otherwise the next file opened would get
/// such a descriptor and receive the console output.
void reserve_standard_streams();

}  // namespace trainopt
