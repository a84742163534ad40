// How a program's end is told: its code, a signal, and the limits of its time.
#include "base/run_command.h"

#include "support/temporary_folder.h"

#include <catch2/catch.hpp>

#include <csignal>

using namespace trainopt;

TEST_CASE("a program's exit code and output are returned") {
  const TemporaryFolder folder;
  const CommandEnd end = run_command({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, folder.path());
  CHECK(end.code == 3);
  CHECK(end.output == "out\n");
  CHECK(end.errors == "err\n");
  CHECK_FALSE(end.took_too_long);
}

TEST_CASE("a program that takes too long is ended") {
  const TemporaryFolder folder;
  const CommandEnd end = run_command({"/bin/sleep", "1000"}, folder.path(), {.seconds = 0.05});
  CHECK(end.took_too_long);
  CHECK(end.code == 128 + SIGTERM);
}

TEST_CASE("a program gets the signal that stops its caller") {
  const TemporaryFolder folder;
  const std::atomic<int> stop = SIGTERM;  // a shell's background jobs ignore SIGINT
  const CommandEnd end = run_command({"/bin/sleep", "1000"}, folder.path(), {.stop = &stop});
  CHECK(end.code == 128 + SIGTERM);
  CHECK_FALSE(end.took_too_long);
}
