#include "run/signals.h"

#include "base/signals.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace trainopt {
namespace {

std::atomic<int> requested{0};  // global, because a signal handler can reach nothing else
static_assert(std::atomic<int>::is_always_lock_free);

std::atomic<const char*> acknowledgement{nullptr};
static_assert(std::atomic<const char*>::is_always_lock_free);

std::atomic<bool> save_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_save_request(int) { save_requested = true; }

/// When the stop was asked for, in milliseconds of the monotonic clock.
std::atomic<int64_t> requested_at_ms{0};
static_assert(std::atomic<int64_t>::is_always_lock_free);

int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // may be called by a signal handler
  return int64_t{1000} * now.tv_sec + now.tv_nsec / 1'000'000;
}

void on_signal(int number) {
  // `timeout` signals both a process and its group, and terminals and launchers repeat each other: what follows at once
  // is the same wish.
  constexpr int64_t kSameWishMs = 100;
  // A scheduler may send USR1 first and TERM later, and a closed terminal sends HUP several times: only a second INT or
  // TERM ends the process at once.
  const auto is_notice = [](int each) { return each == SIGUSR1 || each == SIGHUP || each == kFolderTaken; };
  const int before = requested.exchange(is_notice(number) && requested != 0 ? requested.load() : number);
  const char* const text = acknowledgement;
  const bool is_second =
      !is_notice(number) && before != 0 && !is_notice(before) && now_ms() - requested_at_ms > kSameWishMs;
  if (before == 0 || is_notice(before)) requested_at_ms = now_ms();
  if (text && (before == 0 || is_second)) {
    const int error = errno;  // the interrupted call may read it next
    pollfd out{STDERR_FILENO, POLLOUT, 0};
    const char* const words = is_second ? "\n" : text;  // an unfinished line stands before the shell's next prompt
    if (::poll(&out, 1, 0) > 0 && (out.revents & POLLOUT) != 0)  // a full pipe must not keep the user waiting
        [[maybe_unused]]
      const ssize_t written = ::write(STDERR_FILENO, words, std::strlen(words));
    errno = error;
  }
  if (is_second) ::_exit(128 + number);
}

std::vector<int> stopping_signals() {
  std::vector<int> numbers{SIGINT, SIGTERM, SIGUSR1};
  struct sigaction hang_up {};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) numbers.push_back(SIGHUP);
  return numbers;
}

}  // namespace

const std::atomic<int>& stop_signal() { return requested; }

void request_stop(int reason) {
  int none = 0;
  requested.compare_exchange_strong(none, reason);
}

void acknowledge_stop(const char* text) { acknowledgement = text; }

std::atomic<bool>& save_request() { return save_requested; }

void handle_signals_at_start() {
  struct sigaction action {};
  if (::getpid() == 1) {  // a container's first process: the kernel drops signals that it does not handle
    action.sa_handler = [](int number) { ::_exit(128 + number); };
    for (const int number : stopping_signals()) ::sigaction(number, &action, nullptr);
  }
  action.sa_handler = on_save_request;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR2, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // losing the reader of the output must not end the run
  std::signal(SIGXFSZ, SIG_IGN);  // nor must a file size limit (ulimit -f): both become errors of the write call
}

void handle_signals() {
  handle_signals_at_start();
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int number : stopping_signals()) ::sigaction(number, &action, nullptr);
  sigset_t held_back;
  sigemptyset(&held_back);
  for (const int number : {SIGUSR1, SIGUSR2}) sigaddset(&held_back, number);
  ::pthread_sigmask(SIG_UNBLOCK, &held_back, nullptr);
}

void reserve_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF)
      ::open("/dev/null", O_RDONLY);  // takes the lowest free descriptor; writing to it fails, as it should
}

}  // namespace trainopt
