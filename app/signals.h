// SIGINT, SIGTERM and SIGUSR1 ask for a stop after the current step; a second SIGINT or SIGTERM ends the process at once.
#pragma once

#include <atomic>

namespace trainopt {

/// 0 until a signal asked for a stop, then its number.
const std::atomic<int>& stop_signal();
void handle_signals();
/// First of all: where the caller closed standard input, output or error, the next file opened would take its number and our lines.
void keep_standard_streams();

}  // namespace trainopt
