// One error type for whatever c10d throws when a rank is gone or silent. Job::explain() finds out which rank it was.
#pragma once

#include "base/error.h"
#include "base/out_of_threads.h"
#include "device/gpu_error.h"

namespace trainopt {

class LostRank : public UserError {
 public:
  /// `what`: c10d's own message, for the log.
  explicit LostRank(std::string what)
      : UserError("another rank is gone or was silent for longer than parallel.timeout", ExitCode::peer),
        cause_(std::move(what)) {}
  const std::string& cause() const { return cause_; }

 private:
  std::string cause_;
};

/// Another rank reports why the job failed; this one ends with the same code and reports nothing.
class PeerFailed : public UserError {
 public:
  using UserError::UserError;
};

/// A failure's code as another rank has written it. Nothing makes a failure a success.
inline ExitCode code_of_peer(int written) {
  return written > 0 && written < 128 ? static_cast<ExitCode>(written) : ExitCode::peer;
}

/// Runs a call into c10d and turns any exception but a GPU fault into LostRank.
template <class Call>
auto or_lost_rank(Call call) {
  try {
    return call();
  } catch (const LostRank&) {
    throw;
  } catch (const std::exception& error) {                     // named recovery: c10d has no specific exception type
    if (gpu_fault(error) || is_out_of_threads(error)) throw;  // this rank's own
    throw LostRank(error.what());
  }
}

}  // namespace trainopt
