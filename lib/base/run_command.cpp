#include "base/run_command.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files/files.h"
#include "base/files/program_files.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

namespace trainopt {
namespace {

int open_for(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) throw FileError("cannot write", file, errno, ExitCode::storage);
  return descriptor;
}

/// Signals that arrive between fork and exec wait, and then end the new program as if it had begun: this program's
/// handlers would only set flags in a copy that is about to vanish. What is ignored stays ignored.
class SignalsWait {
 public:
  SignalsWait() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsWait() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

  void deliver_by_default() const {
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
      struct sigaction action {};
      ::sigaction(number, nullptr, &action);
      if (action.sa_handler != SIG_IGN) ::signal(number, SIG_DFL);
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t before_;
};

/// Between fork and exec only calls that are safe in a multithreaded process.
pid_t start(std::vector<std::string> words, int output, int errors) {
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const SignalsWait signals;
  const pid_t parent = ::getpid(), process = ::fork();
  if (process < 0)
    throw UserError(fmt::format("cannot start a process: {}: {}", std::strerror(errno), words.front()), ExitCode::bug);
  if (process > 0) return process;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);  // it has ended already
  ::dup2(output, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  signals.deliver_by_default();
  ::execv(arguments.front(), arguments.data());
  ::_exit(127);
}

/// Between SIGTERM and SIGKILL: a run that is stopped saves its state first.
constexpr double kToEndS = 30;

void wait_for(pid_t process, const CommandLimits& limits, CommandEnd& end) {
  const auto began = Clock::now();
  for (bool told = false, killed = false;;) {
    int status = 0;
    if (::waitpid(process, &status, WNOHANG) == process) {
      end.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      return;
    }
    if (limits.stop && *limits.stop != 0 && !std::exchange(told, true)) ::kill(process, *limits.stop);
    if (const double beyond = seconds_since(began) - limits.seconds.value_or(INFINITY); beyond > 0) {
      if (!std::exchange(end.took_too_long, true)) ::kill(process, SIGTERM);
      if (beyond > kToEndS && !std::exchange(killed, true)) ::kill(process, SIGKILL);
    }
    const timespec pause{.tv_sec = 0, .tv_nsec = 20'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace

CommandEnd run_command(const std::vector<std::string>& words, const std::filesystem::path& folder,
                       const CommandLimits& limits) {
  const auto output = folder / "stdout", errors = folder / "stderr";
  const int to_output = open_for(output), to_errors = open_for(errors);
  CommandEnd end;
  const pid_t process = start(words, to_output, to_errors);
  ::close(to_output);
  ::close(to_errors);
  wait_for(process, limits, end);
  end.output = read_file(output, ExitCode::storage);
  end.errors = read_file(errors, ExitCode::storage);
  return end;
}

namespace {

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of("\n ");
  if (end == text.npos) return "";
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin == text.npos ? 0 : begin + 1, end - (begin == text.npos ? 0 : begin + 1) + 1);
}

}  // namespace

CommandEnd run_self(const std::vector<std::string>& words, const std::filesystem::path& folder, int64_t ranks,
                    const CommandLimits& limits) {
  std::vector<std::string> all{this_program().string()};
  if (ranks > 1)
    for (const std::string& word : {std::string("launch"), std::string("-n"), std::to_string(ranks), std::string("--")})
      all.push_back(word);
  all.insert(all.end(), words.begin(), words.end());
  return run_command(all, folder, limits);
}

ExitCode exit_code_of(const CommandEnd& end) {
  const bool documented = end.code > 0 && end.code <= static_cast<int>(ExitCode::gate);
  return documented ? static_cast<ExitCode>(end.code) : ExitCode::bug;
}

std::string failure_of(const CommandEnd& end) {
  if (end.took_too_long) return "failed: it took too long and was ended";
  std::string line = last_line(end.errors);
  if (line.starts_with("trainopt: ")) line = line.substr(10);
  if (line.empty()) line = end.code > 128 ? fmt::format("ended by signal {}", end.code - 128) : "no message";
  return fmt::format("failed (exit code {}): {}", end.code, line);
}

}  // namespace trainopt
