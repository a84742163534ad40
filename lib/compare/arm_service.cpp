#include "compare/arm_service.h"

#include "comm/lost_rank.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace trainopt {
namespace {

Json answer(Arm& arm, const Json& request) {
  if (request.contains("turn")) return {{"turn", to_json(arm.turn(request.at("turn")))}};
  return {{"facts", to_json(arm.facts())}};
}

}  // namespace

void write_json_line(int fd, const Json& json) {
  const std::string line = json_text(json) + "\n";
  for (size_t written = 0; written < line.size();) {
    const ssize_t count = ::send(fd, line.data() + written, line.size() - written, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw UserError("the other process of this comparison has ended", ExitCode::peer);
    written += static_cast<size_t>(count);
  }
}

std::optional<Json> read_json_line(int fd, std::string& buffer) {
  while (true) {
    if (const size_t end = buffer.find('\n'); end != std::string::npos) {
      const std::string line = buffer.substr(0, end);
      buffer.erase(0, end + 1);
      return parse_json(line);
    }
    char bytes[4096];
    const ssize_t count = ::read(fd, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    buffer.append(bytes, static_cast<size_t>(count));
  }
}

Failure explain_plainly(const std::exception& error) {
  const auto* user = dynamic_cast<const UserError*>(&error);
  return {error.what(), user ? user->code() : ExitCode::bug, dynamic_cast<const PeerFailed*>(&error) != nullptr};
}

int serve_arm(int fd, const std::function<Arm&()>& make, const Explain& explain) {
  try {
    Arm& arm = make();
    write_json_line(fd, {{"ready", true}});
    std::string buffer;
    while (const auto request = read_json_line(fd, buffer)) write_json_line(fd, answer(arm, *request));
    return 0;
  } catch (const std::exception&
               error) {  // process boundary: the process that started this one reports the error to the user
    const Failure failure = explain(error);
    try {
      write_json_line(fd, {{"error", failure.message},
                           {"exit_code", static_cast<int>(failure.code)},
                           {"reported_by_other_rank", failure.reported_by_other_rank}});
    } catch (const UserError&) {  // the process that would report it has ended
    }
    return static_cast<int>(failure.code);
  }
}

}  // namespace trainopt
