#include "app/signals.h"

#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <unistd.h>

namespace trainopt {
namespace {

std::atomic<int> requested{0};  // global, because a signal handler can reach nothing else
static_assert(std::atomic<int>::is_always_lock_free);

std::atomic<bool> save_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_save_request(int) { save_requested = true; }

void on_signal(int number) {
  // A scheduler may send USR1 first and TERM later: only a second INT or TERM ends the process at once.
  const int before = requested.exchange(number == SIGUSR1 && requested != 0 ? requested.load() : number);
  if (number != SIGUSR1 && before != 0 && before != SIGUSR1) ::_exit(128 + number);
}

}  // namespace

const std::atomic<int>& stop_signal() { return requested; }

std::atomic<bool>& save_request() { return save_requested; }

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) ::sigaction(number, &action, nullptr);
  action.sa_handler = on_save_request;
  ::sigaction(SIGUSR2, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // losing the reader of the output must not end the run
  std::signal(SIGXFSZ, SIG_IGN);  // nor must a file size limit (ulimit -f): both become errors of the write call
}

void reserve_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF)
      ::open("/dev/null", O_RDONLY);  // takes the lowest free descriptor; writing to it fails, as it should
}

}  // namespace trainopt
