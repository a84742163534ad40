// SIGINT, SIGTERM and SIGUSR1 ask for a stop after the current step; a second SIGINT or SIGTERM ends the process at
// once. SIGUSR2 asks for a checkpoint.
#pragma once

#include <atomic>

namespace trainopt {

/// 0 until a signal asked for a stop, then its number.
const std::atomic<int>& stop_signal();
/// Set by SIGUSR2; whoever saves takes it back.
std::atomic<bool>& save_request();
void handle_signals();
/// First of all: where the caller closed standard input, output or error, the next file opened would take its number
/// and our lines.
void keep_standard_streams();

}  // namespace trainopt
