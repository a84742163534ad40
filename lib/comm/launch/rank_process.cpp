#include "comm/launch/rank_process.h"

#include "base/error.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace trainopt {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    std::array<int, 2> ends{};
    // Close-on-exec: otherwise a rank would hold open the pipes of ranks started before it, and they would never reach
    // end of file.
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      throw UserError(fmt::format("cannot create a pipe for a rank: {}", std::strerror(errno)), ExitCode::bug);
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    for (const int end : {read_end, write_end})
      if (end >= 0) ::close(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int take_read_end() {
    ::fcntl(read_end, F_SETFL, O_NONBLOCK);
    return std::exchange(read_end, -1);
  }
};

std::vector<std::string> variables_of(const LocalRanks& spec, int local_rank) {
  auto all = spec.environment;
  all["RANK"] = std::to_string(spec.node_rank * spec.count + local_rank);
  all["LOCAL_RANK"] = std::to_string(local_rank);
  all["WORLD_SIZE"] = std::to_string(spec.nodes * spec.count);
  all["LOCAL_WORLD_SIZE"] = std::to_string(spec.count);
  all["MASTER_ADDR"] = spec.master_address;
  all["MASTER_PORT"] = std::to_string(spec.master_port);
  all["TRAINOPT_LAUNCH"] = std::to_string(1);
  all["TORCHELASTIC_RESTART_COUNT"] = std::to_string(spec.restarts);
  all["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(spec.max_restarts);
  std::vector<std::string> lines;
  for (const auto& [name, value] : all) lines.push_back(name + "=" + value);
  return lines;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (auto& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

/// Runs in the child between fork and exec, so only async-signal-safe calls are allowed. If exec fails, writes errno to
/// `status` and exits.
[[noreturn]] void become(char* const* command, char* const* variables, const sigset_t& mask, pid_t launcher, int output,
                         int errors, int status) {
  ::setpgid(0, 0);  // otherwise a terminal's Ctrl-C would reach it twice: directly and forwarded
  ::prctl(PR_SET_PDEATHSIG,
          SIGKILL);  // not SIGTERM: without its launcher a rank must not continue, and checkpoints are atomic
  if (::getppid() != launcher) ::_exit(1);  // the launcher died before prctl
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const bool connected =
      ::dup2(nothing, STDIN_FILENO) >= 0 && ::dup2(output, STDOUT_FILENO) >= 0 && ::dup2(errors, STDERR_FILENO) >= 0;
  // The launcher passes them on even if it was started in the background of a script, where shells ignore SIGINT.
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, SIG_DFL);
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGCHLD, SIG_DFL);
  sigset_t at_start = mask;
  for (const int number : {SIGUSR1, SIGUSR2}) sigaddset(&at_start, number);
  ::sigprocmask(SIG_SETMASK, &at_start, nullptr);
  if (connected) ::execve(command[0], command, variables);
  const int reason = errno;
  [[maybe_unused]] const ssize_t written = ::write(status, &reason, sizeof reason);
  ::_exit(127);
}

std::string prefix_of(const LocalRanks& spec, int rank) {
  return spec.nodes * spec.count > 1 ? fmt::format("[{}] ", rank) : "";
}

}  // namespace

RankProcess::RankProcess(const LocalRanks& spec, int local_rank, const sigset_t& mask)
    : rank_(spec.node_rank * spec.count + local_rank) {
  Pipe output, errors, status;
  auto words = spec.command;
  auto variables = variables_of(spec, local_rank);
  const auto word_pointers = pointers(words), variable_pointers = pointers(variables);
  const pid_t launcher = ::getpid();
  process_ = ::fork();
  if (process_ < 0)
    throw UserError(fmt::format("cannot start rank {}: {}", rank_, std::strerror(errno)), ExitCode::bug);
  if (process_ == 0)
    become(word_pointers.data(), variable_pointers.data(), mask, launcher, output.write_end, errors.write_end,
           status.write_end);
  ::setpgid(process_, process_);  // also done in the child: whichever runs first
  ::close(std::exchange(status.write_end, -1));
  int reason = 0;
  ssize_t count = 0;
  while ((count = ::read(status.read_end, &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  if (count > 0) {
    ::waitpid(std::exchange(process_, -1), nullptr, 0);
    throw UserError(fmt::format("cannot start rank {}: {}: {}", rank_, std::strerror(reason), spec.command.front()),
                    ExitCode::bug);
  }
  output_.emplace(output.take_read_end(), STDOUT_FILENO, spec.bare_output ? "" : prefix_of(spec, rank_));
  errors_.emplace(errors.take_read_end(), STDERR_FILENO, prefix_of(spec, rank_));
}

RankProcess::~RankProcess() {
  if (!running()) return;
  signal_group(SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : rank_(other.rank_),
      output_(std::move(other.output_)),
      errors_(std::move(other.errors_)),
      process_(std::exchange(other.process_, -1)) {}

std::optional<int> RankProcess::reap() {
  int status = 0;
  if (!running() || ::waitpid(process_, &status, WNOHANG) != process_) return std::nullopt;
  process_ = -1;
  return status;
}

void RankProcess::signal(int number) const {
  if (running()) ::kill(process_, number);
}

void RankProcess::signal_group(int number) const {
  if (running()) ::kill(-process_, number);
}

QueuedSignals::QueuedSignals() {
  sigset_t queued;
  sigemptyset(&queued);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&queued, number);
  struct sigaction hang_up {};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler == SIG_IGN) sigdelset(&queued, SIGHUP);
  descriptor_ = ::signalfd(-1, &queued, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0)
    throw UserError(fmt::format("cannot listen to signals: {}", std::strerror(errno)), ExitCode::bug);
  ::pthread_sigmask(SIG_BLOCK, &queued, &mask_before_);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;  // if SIGCHLD were ignored, exit codes of children would be lost
  ::sigaction(SIGCHLD, &action, &child_before_);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, &pipe_before_);
}

QueuedSignals::~QueuedSignals() {
  ::sigaction(SIGPIPE, &pipe_before_, nullptr);
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::close(descriptor_);
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::optional<int> QueuedSignals::next() {
  signalfd_siginfo one{};
  if (::read(descriptor_, &one, sizeof one) != sizeof one) return std::nullopt;
  return static_cast<int>(one.ssi_signo);
}

}  // namespace trainopt
