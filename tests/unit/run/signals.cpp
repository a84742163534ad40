// What a signal asks a run for.
#include "run/signals.h"

#include "base/signals.h"
#include "support/catch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>

using namespace trainopt;

namespace {

constexpr int kPause = -1;  ///< among signals: so long that what follows is another wish

/// Raises the signals in a process that handles them. Returns the reason to stop that they leave, or 128 + the number
/// of the signal that ended the process at once.
int reason_after(std::initializer_list<int> signals, bool in_start = false) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_DFL);  // not the test program's
    in_start ? handle_signals_at_start() : handle_signals();
    for (const int number : signals) number == kPause ? ::usleep(200'000) : ::raise(number);
    ::_exit(stop_signal());
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("INT, TERM, HUP and USR1 ask for a stop; what was asked first stays") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) CHECK(reason_after({number}) == number);
  CHECK(reason_after({SIGTERM, SIGUSR1}) == SIGTERM);
  CHECK(reason_after({SIGTERM, SIGHUP, SIGHUP}) == SIGTERM);
}

TEST_CASE("a second INT or TERM ends the process at once, but not one after a mere notice") {
  CHECK(reason_after({SIGINT, kPause, SIGTERM}) == 128 + SIGTERM);
  CHECK(reason_after({SIGUSR1, kPause, SIGTERM}) == SIGTERM);
  CHECK(reason_after({SIGHUP, SIGTERM, kPause, SIGTERM}) == 128 + SIGTERM);
}

TEST_CASE("signals that follow at once are one wish, as when timeout signals a process and its group") {
  // A machine may stall between the two, so one of several attempts is enough.
  bool taken_as_one = false;
  for (int attempt = 0; attempt < 5 && !taken_as_one; ++attempt)
    taken_as_one = reason_after({SIGTERM, SIGTERM}) == SIGTERM;
  CHECK(taken_as_one);
}

TEST_CASE("in the start a stop ends the process at once, and a request for a checkpoint waits") {
  CHECK(reason_after({SIGTERM}, true) == 128 + SIGTERM);
  CHECK(reason_after({SIGUSR2}, true) == 0);
}

TEST_CASE("USR2 asks for a checkpoint, and the run itself may ask for a stop") {
  const pid_t child = ::fork();
  if (child == 0) {
    handle_signals();
    ::raise(SIGUSR2);
    const bool asked = save_request() && stop_signal() == 0;
    request_stop(kFolderTaken);
    request_stop(SIGTERM);
    ::_exit(asked && stop_signal() == kFolderTaken ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
