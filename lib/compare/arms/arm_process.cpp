#include "compare/arms/arm_process.h"

#include "base/clock.h"
#include "base/files/files.h"
#include "comm/communicator.h"

#include <sys/socket.h>
#include <sys/wait.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace trainopt {
namespace {

constexpr int kArmSocket = 3;  // the descriptor of the socket in an arm's process

std::vector<std::string> command_line(const std::filesystem::path& program, const ArmSpec& spec) {
  return {program.string(),
          "arm",
          "--socket",
          std::to_string(kArmSocket),
          "--folder",
          spec.folder.string(),
          (spec.folder / "recipe.yaml").string()};
}

/// Between fork and exec only calls that are safe in a multithreaded process.
pid_t spawn(std::vector<std::string> words, int socket) {
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t process = ::fork();
  if (process < 0)
    throw UserError(fmt::format("cannot start a process for an arm: {}", std::strerror(errno)), ExitCode::bug);
  if (process > 0) return process;
  // A signal from the terminal reaches the whole process group, but only the comparison acts on it, even while the
  // arm's program is still loading. Ignored signals stay ignored in the new program.
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) ::signal(number, SIG_IGN);
  const int nowhere = ::open("/dev/null", O_WRONLY);
  ::dup2(nowhere, STDOUT_FILENO);  // standard output belongs to the comparison
  ::dup2(socket, kArmSocket);
  ::execv(arguments.front(), arguments.data());
  ::_exit(127);
}

}  // namespace

std::filesystem::path spec_file(const std::filesystem::path& arm_folder) { return arm_folder / "arm.json"; }

ArmProcess::ArmProcess(const std::filesystem::path& program, const ArmSpec& spec)
    : folder_(spec.folder), rendezvous_(spec.rendezvous) {
  write_file(spec_file(spec.folder), json_text(to_json(spec), 2) + "\n");
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw UserError(fmt::format("cannot create a socket for an arm: {}", std::strerror(errno)), ExitCode::bug);
  socket_ = ends[0];
  if (ends[1] == kArmSocket) {  // dup2 onto itself would leave FD_CLOEXEC set
    ends[1] = ::fcntl(ends[1], F_DUPFD_CLOEXEC, kArmSocket + 1);
    ::close(kArmSocket);
  }
  try {
    process_ = spawn(command_line(program, spec), ends[1]);
    ::close(std::exchange(ends[1], -1));
    receive();
  } catch (...) {  // the destructor does not run
    if (ends[1] >= 0) ::close(ends[1]);
    end();
    throw;
  }
}

ArmProcess::~ArmProcess() { end(); }

void ArmProcess::end() {
  ::close(socket_);  // the arm exits at the end of its requests
  if (process_ <= 0) return;
  for (int tenths = 0; tenths < 50; ++tenths) {
    if (::waitpid(process_, nullptr, WNOHANG) != 0) return;
    ::usleep(100'000);
  }
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

Json ArmProcess::send_and_receive(const Json& request) {
  try {
    write_json_line(socket_, request);
  } catch (const UserError&) {  // it has ended, and its end says more
    throw UserError("an arm's process " + describe_exit(), ExitCode::peer);
  }
  return receive();
}

Json ArmProcess::receive() {
  wait_for_answer();
  const auto json = read_json_line(socket_, buffer_);
  if (!json) throw UserError("an arm's process " + describe_exit(), ExitCode::peer);
  if (json->contains("error")) {
    const std::string sentence = json->at("error");
    const auto code = static_cast<ExitCode>(json->at("exit_code").get<int>());
    if (json->at("reported_by_other_rank")) throw PeerFailed(sentence, code);
    throw UserError(sentence, code);
  }
  return *json;
}

/// Meanwhile hands a stop on to the process. If another rank has found that this arm's ranks no longer get on, the
/// process may never answer.
void ArmProcess::wait_for_answer() {
  constexpr int kLookEveryMs = 200;
  constexpr double kLastChanceS = 10;
  std::optional<Clock::time_point> failed;
  pollfd answer{socket_, POLLIN, 0};
  for (bool told = false; ::poll(&answer, 1, kLookEveryMs) <= 0;) {  // a signal may have interrupted it
    if (!told && limit_.is_stopped()) {
      write_json_line(socket_, {{"stop", true}});
      told = true;
    }
    if (!rendezvous_ || !rendezvous_->has_failed) continue;
    if (!failed && rendezvous_->has_failed()) failed = Clock::now();
    if (!failed || seconds_since(*failed) < kLastChanceS) continue;
    ::kill(process_, SIGKILL);
    throw PeerFailed("the arm's process on this rank did not answer", ExitCode::peer);
  }
}

std::string ArmProcess::describe_exit() {
  int status = 0;
  ::waitpid(process_, &status, 0);
  process_ = -1;
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({}){}", WTERMSIG(status), ::strsignal(WTERMSIG(status)),
                       WTERMSIG(status) == SIGKILL ? "; the system may have run out of memory" : "");
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

Turn ArmProcess::turn(int64_t steps) {
  const bool limited = limit_.until != Clock::time_point::max();
  const Json most_s = limited ? Json(-seconds_since(limit_.until)) : Json();
  Turn turn = turn_from(send_and_receive({{"turn", steps}, {"most_s", most_s}}).at("turn"));
  turn.cpu_outside_s = turn.cpu_s;
  steps_ += turn.steps;
  return turn;
}
ArmFacts ArmProcess::facts() { return facts_from(send_and_receive({{"facts", true}}).at("facts")); }

namespace {

/// Whether there is something more to read: a stop, or the end of requests. `buffer`: what was read already.
bool has_request(int fd, const std::string& buffer) {
  pollfd request{fd, POLLIN, 0};
  return !buffer.empty() || ::poll(&request, 1, 0) > 0;
}

Json answer(Arm& arm, const Json& request, int fd, const std::string& buffer) {
  if (request.contains("turn")) {
    const Json most_s = request.value("most_s", Json());
    arm.limit_turns({.until = most_s.is_null() ? Clock::time_point::max() : after(most_s.get<double>()),
                     .stopped = [fd, &buffer] { return has_request(fd, buffer); }});
    return {{"turn", to_json(arm.turn(request.at("turn")))}};
  }
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
    while (const auto request = read_json_line(fd, buffer))
      if (!request->contains("stop")) write_json_line(fd, answer(arm, *request, fd, buffer));
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
