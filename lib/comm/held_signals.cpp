#include "comm/held_signals.h"

#include "base/error.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace trainopt {

HeldSignals::HeldSignals() {
  sigset_t held;
  sigemptyset(&held);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&held, number);
  struct sigaction hang_up {};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler == SIG_IGN) sigdelset(&held, SIGHUP);
  descriptor_ = ::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0)
    throw UserError(fmt::format("cannot listen to signals: {}", std::strerror(errno)), ExitCode::bug);
  ::pthread_sigmask(SIG_BLOCK, &held, &mask_before_);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;  // if SIGCHLD were ignored, exit codes of children would be lost
  ::sigaction(SIGCHLD, &action, &child_before_);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, &pipe_before_);
}

HeldSignals::~HeldSignals() {
  ::sigaction(SIGPIPE, &pipe_before_, nullptr);
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::close(descriptor_);
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::optional<int> HeldSignals::next() {
  signalfd_siginfo one{};
  if (::read(descriptor_, &one, sizeof one) != sizeof one) return std::nullopt;
  return static_cast<int>(one.ssi_signo);
}

}  // namespace trainopt
