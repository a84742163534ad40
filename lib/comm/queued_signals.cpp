#include "comm/queued_signals.h"

#include "base/error.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace trainopt {

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
