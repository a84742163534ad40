// SIGINT, SIGTERM and SIGUSR1 ask for a stop after the current step; a second SIGINT or SIGTERM ends the process at once.
#pragma once

#include <atomic>

namespace trainopt {

/// 0 until a signal asked for a stop, then its number.
const std::atomic<int>& stop_signal();
void handle_signals();

}  // namespace trainopt
