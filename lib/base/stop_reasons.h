// A request to stop is a signal's number, or one of these.
#pragma once

namespace trainopt {

/// The run directory's name leads to another folder. Nobody waits for the run to end, so there is no grace period.
inline constexpr int kFolderTaken = 1000;

inline bool is_signal(int request) { return request != 0 && request != kFolderTaken; }

}  // namespace trainopt
