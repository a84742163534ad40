// The work that a process has completed while it has nothing else to report: file calls and answers of servers. By it
// the watchdog tells a start that reads many files from one that hangs.
#pragma once

#include <cstdint>

namespace trainopt {

/// Counts one completed piece of work. Wait-free, from any thread.
void note_progress() noexcept;
/// The pieces counted since the process began.
uint64_t progress_made() noexcept;

}  // namespace trainopt
