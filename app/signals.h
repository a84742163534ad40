// SIGINT, SIGTERM and SIGUSR1 ask for a stop after the current step; a second SIGINT or SIGTERM ends the process at
// once. SIGUSR2 asks for a checkpoint.
#pragma once

#include <atomic>

namespace trainopt {

/// 0 until a signal asks for a stop, then its number.
const std::atomic<int>& stop_signal();
/// Set by SIGUSR2; cleared by whoever saves the checkpoint.
std::atomic<bool>& save_request();
void handle_signals();
/// Opens /dev/null for standard streams that the caller closed. Call first: otherwise the next file opened would get
/// such a descriptor and receive the console output.
void reserve_standard_streams();

}  // namespace trainopt
