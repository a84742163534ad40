#include "metrics/console.h"

#include "base/clock.h"
#include "metrics/format.h"
#include "support/catch.h"

#include <fcntl.h>
#include <pty.h>
#include <unistd.h>

#include <thread>

using namespace trainopt;

namespace {

StepRecord console_row(int64_t step) {
  StepRecord row;
  row[Metric::step] = static_cast<double>(step);
  row[Metric::samples_per_s] = 1243;
  return row;
}

/// Everything that can be read without blocking.
std::string read_all(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = ::read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(count));
  return text;
}

/// What a terminal shows after these bytes, one string per row. Understands \r, \n and "erase the line".
std::vector<std::string> shown(const std::string& bytes) {
  std::vector<std::string> rows(1);
  size_t column = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\r')
      column = 0;
    else if (bytes[i] == '\n')
      rows.emplace_back(), column = 0;
    else if (bytes.compare(i, 4, "\033[2K") == 0)
      rows.back().clear(), i += 3;
    else {
      if (rows.back().size() <= column) rows.back().resize(column + 1, ' ');
      rows.back()[column++] = bytes[i];
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("a pipe receives only plain lines") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  {
    Console console(
        {.fd = ends[1], .terminal = false, .color = false, .progress = Progress::automatic, .total_steps = 3});
    for (int64_t step = 1; step <= 3; ++step) console.step(console_row(step), "step " + std::to_string(step));
    console.line("the end");
  }
  CHECK(read_all(ends[0]) == "step 1\nstep 2\nstep 3\nthe end\n");
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("on a terminal the progress stays at the bottom, is drawn at most ten times a second and is removed") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const auto begin = Clock::now();
  Console console({.fd = ends[1], .terminal = true, .color = false, .progress = Progress::automatic, .total_steps = 4});
  console.step(console_row(1), "step 1");
  const std::string first = read_all(ends[0]);
  CHECK(shown(first) ==
        std::vector<std::string>{"step 1", "[======                  ]  25 %  1/4  1243 samples/s  - left"});
  console.step(console_row(2), "step 2");
  const std::string second = read_all(ends[0]);
  if (seconds_since(begin) < 0.1) CHECK(second.empty());
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  console.step(console_row(3), "step 3");
  const std::string third = first + second + read_all(ends[0]);
  const auto rows = shown(third);
  REQUIRE(rows.size() == 4);
  CHECK(rows[1] == "step 2");
  CHECK(rows[2] == "step 3");
  const std::string bar = "[==================      ]  75 %  3/4  1243 samples/s  ";
  REQUIRE_THAT(rows[3], Catch::Matchers::StartsWith(bar) && ContainsSubstring(" s left"));
  const double left = std::stod(rows[3].substr(bar.size()));  // half of what two steps took, rounded
  CHECK(left >= 0.1);
  CHECK(left <= seconds_since(begin) / 2 + 0.06);
  console.flush();
  CHECK(shown(third + read_all(ends[0])) == std::vector<std::string>{"step 1", "step 2", "step 3", ""});
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("the progress line fits a narrow terminal and is coloured only when asked") {
  int terminal = -1, program = -1;
  winsize size{};
  size.ws_col = 20;
  size.ws_row = 5;
  REQUIRE(openpty(&terminal, &program, nullptr, nullptr, &size) == 0);
  {
    Console console(
        {.fd = program, .terminal = true, .color = true, .progress = Progress::automatic, .total_steps = 1000});
    console.step(console_row(10), {});
    CHECK(read_all(terminal) == "  1 %  10/1000  124");
  }
  size.ws_col = 120;
  ioctl(program, TIOCSWINSZ, &size);
  read_all(terminal);
  Console console(
      {.fd = program, .terminal = true, .color = true, .progress = Progress::automatic, .total_steps = 1000});
  console.step(console_row(500), {});
  CHECK_THAT(read_all(terminal), ContainsSubstring("[\033[32m============            \033[0m]  50 %"));
  close(program);
  close(terminal);
}

TEST_CASE("progress can be turned off on a terminal") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  {
    Console console({.fd = ends[1], .terminal = true, .color = false, .progress = Progress::off, .total_steps = 3});
    console.step(console_row(1), "step 1");
  }
  CHECK(read_all(ends[0]) == "step 1\n");
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a reader that goes away does not end the program") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  Console console({.fd = ends[1]});
  console.line("to nobody");
  console.flush();
  console.line("still here");
  console.flush();
  close(ends[1]);
  SUCCEED();
}

TEST_CASE("rates and durations are rounded for reading") {
  CHECK(human_rate(1243.4) == "1243");
  CHECK(human_rate(99.44) == "99.4");
  CHECK(human_rate(0.5) == "0.50");
  CHECK(human_seconds(2.14) == "2.1 s");
  CHECK(human_seconds(42.4) == "42 s");
  CHECK(human_seconds(65) == "1m 05s");
  CHECK(human_seconds(7500) == "2h 05m");
}
