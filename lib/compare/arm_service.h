// The loop of an arm's own process: reads requests, one JSON object per line, and answers each with one.
//   {"turn": 3}  → {"turn": {…}}      {"facts": true} → {"facts": {…}}      on failure → {"error": "…", "exit_code": 5,
//   …}
#pragma once

#include "base/error.h"
#include "compare/arm.h"

#include <functional>
#include <string>

namespace trainopt {

/// A line of JSON on a descriptor. read_json_line() returns nullopt at its end; write_json_line() throws
/// UserError(peer) if the other side has closed it.
void write_json_line(int fd, const Json& json);
std::optional<Json> read_json_line(int fd, std::string& buffer);

/// What an exception means for the user.
struct Failure {
  std::string message;
  ExitCode code = ExitCode::bug;
  bool reported_by_other_rank = false;  ///< the cause is on another rank
};
using Explain = std::function<Failure(const std::exception&)>;
/// A UserError's own message and code; for other exceptions the message and `bug`.
Failure explain_plainly(const std::exception& error);

/// Creates the arm, which must outlive this call, sends {"ready": true}, and answers until the other side closes. An
/// error is sent once and ends the service. Returns the error's exit code, or 0.
int serve_arm(int fd, const std::function<Arm&()>& make, const Explain& explain);

}  // namespace trainopt
