// What c10d throws when a rank is gone or silent becomes one kind of error. Who it was is known to the job's
// membership.
#pragma once

#include "base/error.h"

namespace trainopt {

class LostRank : public UserError {
 public:
  /// `what`: the library's own message, for the log.
  explicit LostRank(std::string what)
      : UserError("another rank is gone, or silent for longer than parallel.timeout", ExitCode::peer),
        cause_(std::move(what)) {}
  const std::string& cause() const { return cause_; }

 private:
  std::string cause_;
};

/// A rank has failed and reported why; this one ends with the same code and reports nothing.
class PeerFailed : public UserError {
 public:
  using UserError::UserError;
};

/// Runs a call into c10d. Throws LostRank for whatever it throws.
template <class Call>
auto or_lost_rank(Call call) {
  try {
    return call();
  } catch (const LostRank&) {
    throw;
  } catch (const std::exception& error) {  // named recovery: c10d has no type for it
    throw LostRank(error.what());
  }
}

}  // namespace trainopt
