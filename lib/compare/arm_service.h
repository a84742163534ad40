// What an arm's own process does: takes requests, a JSON object a line, and answers each with one.
//   {"turn": 3}  → {"turn": {…}}      {"facts": true} → {"facts": {…}}      what fails → {"error": "…", "exit_code": 5}
#pragma once

#include "base/error.h"
#include "compare/arm.h"

#include <functional>
#include <string>

namespace trainopt {

/// A line of JSON on a descriptor. read_json_line: nullopt at its end. Both throw UserError(peer) if the other side is
/// gone.
void write_json_line(int fd, const Json& json);
std::optional<Json> read_json_line(int fd, std::string& buffer);

/// What an exception means to the user: its sentence and exit code.
using Explain = std::function<std::pair<std::string, ExitCode>(const std::exception&)>;

/// Makes the arm, says {"ready": true}, and answers until the other side closes. An error is said once and ends the
/// service.
void serve_arm(int fd, const std::function<std::unique_ptr<Arm>()>& make, const Explain& explain);

}  // namespace trainopt
