// SIGINT, SIGTERM and SIGUSR1 ask for a stop after the current step; a second SIGINT or SIGTERM ends the process at once. SIGUSR2 asks for
// a checkpoint.
#pragma once

#include <atomic>

namespace trainopt {

/// 0 until a signal asked for a stop, then its number.
const std::atomic<int>& stop_signal();
/// Set by SIGUSR2; whoever saves takes it back.
std::atomic<bool>& save_request();
void handle_signals();

}  // namespace trainopt
