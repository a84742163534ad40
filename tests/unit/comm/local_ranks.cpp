#include "comm/launch/local_ranks.h"

#include "base/clock.h"
#include "base/error.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>

using namespace trainopt;

namespace {

LocalRanks ranks_that(const std::string& script, int count = 2) {
  LocalRanks spec;
  spec.count = count;
  spec.command = {"/bin/sh", "-c", script};
  spec.environment = {{"PATH", "/usr/bin:/bin"}, {"RANK", "77"}, {"KEPT", "as it was"}};
  return spec;
}

/// Runs run_local_ranks() in its own process, with its output streams in files.
class Launcher {
 public:
  /// `ignored`: a signal that the launcher ignores from its start; 0: none.
  explicit Launcher(const LocalRanks& spec, int ignored = 0) {
    std::fflush(stdout);  // buffered output would be written twice
    process_ = ::fork();
    if (process_ != 0) return;
    // Ranks inherit the test runner's open descriptors and ignored signals: shells ignore INT and QUIT in background
    // processes, and nohup ignores HUP.
    ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP})
      std::signal(number, number == ignored ? SIG_IGN : SIG_DFL);
    for (const auto& [name, stream] : {std::pair{"out", STDOUT_FILENO}, {"err", STDERR_FILENO}})
      ::dup2(::open((folder_ / name).c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600), stream);
    ::chdir(folder_.path().c_str());
    int code = 99;
    try {
      code = run_local_ranks(spec);
    } catch (const UserError& error) {
      ::dprintf(STDERR_FILENO, "%s", error.what());
    }
    ::_exit(code);
  }
  ~Launcher() {
    if (process_ > 0) ::kill(process_, SIGKILL);
    end();
  }
  /// The exit code; -n: killed by signal n.
  int end() {
    int status = 0;
    if (process_ > 0 && ::waitpid(process_, &status, 0) == process_) {
      process_ = -1;
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    return code_;
  }
  void signal(int number) const { ::kill(process_, number); }
  std::string out() const { return folder_.text("out"); }
  std::string errors() const { return folder_.text("err"); }
  /// Sorted, because ranks' lines interleave at random.
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::istringstream text(out());
    for (std::string line; std::getline(text, line);) all.push_back(line);
    std::sort(all.begin(), all.end());
    return all;
  }
  void wait_for(const std::vector<std::string>& lines_of_out) const {
    wait_until([&] { return lines() == lines_of_out; });
    INFO(out() << errors());
    CHECK(lines() == lines_of_out);
  }
  template <class Happened>
  static void wait_until(const Happened& happened) {
    for (const auto begin = Clock::now(); !happened() && seconds_since(begin) < 60;) ::usleep(5000);
  }

 private:
  TemporaryFolder folder_;
  pid_t process_ = -1;
  int code_ = -1000;
};

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("each rank gets its own launch variables and inherits the rest of the environment") {
  LocalRanks spec = ranks_that(
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $TRAINOPT_LAUNCH $KEPT", 3);
  spec.nodes = 2;
  spec.node_rank = 1;
  spec.master_address = "10.0.0.1";
  spec.master_port = 5000;
  Launcher launcher(spec);
  CHECK(launcher.end() == 0);
  CHECK(launcher.errors() == "");
  CHECK(launcher.lines() == Lines{"[3] 3/6 0/3 10.0.0.1:5000 1 as it was", "[4] 4/6 1/3 10.0.0.1:5000 1 as it was",
                                  "[5] 5/6 2/3 10.0.0.1:5000 1 as it was"});
}

TEST_CASE("on one machine the launcher chooses a free port") {
  Launcher launcher(
      ranks_that("echo $MASTER_ADDR $((MASTER_PORT > 1023 && MASTER_PORT < 65536)) >&2; echo $MASTER_PORT"));
  CHECK(launcher.end() == 0);
  CHECK_THAT(launcher.errors(), ContainsSubstring("[0] 127.0.0.1 1\n") && ContainsSubstring("[1] 127.0.0.1 1\n"));
  REQUIRE(launcher.lines().size() == 2);
  CHECK(launcher.lines()[0].substr(4) == launcher.lines()[1].substr(4));
}

TEST_CASE("ranks start with no inherited descriptors, empty standard input and default signal handling") {
  Launcher launcher(ranks_that(
      "ls /proc/self/fd | tr '\\n' ' '; cat; echo; grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\\t\\n'"));
  CHECK(launcher.end() == 0);
  for (const char rank : {'0', '1'})  // 3 is the directory that ls reads
    CHECK_THAT(launcher.out(),
               ContainsSubstring(fmt::format("[{}] 0 1 2 3 \n", rank)) &&
                   ContainsSubstring(fmt::format("[{}] SigBlk:0000000000000000SigIgn:0000000000000000\n", rank)));
}

TEST_CASE("lines are forwarded whole, including long ones and a last line without newline") {
  Launcher launcher(ranks_that(
      "for n in 1 2 3; do head -c 200000 /dev/zero | tr '\\0' $RANK; echo; printf 'short\\n\\n'; done; printf 'no end'",
      4));
  CHECK(launcher.end() == 0);
  Lines expected;
  for (const char rank : {'0', '1', '2', '3'}) {
    const std::string prefix = fmt::format("[{}] ", rank);
    for (int time = 0; time < 3; ++time)
      expected.insert(expected.end(), {prefix, prefix + "short", prefix + std::string(200000, rank)});
    expected.push_back(prefix + "no end");
  }
  std::sort(expected.begin(), expected.end());
  CHECK(launcher.lines() == expected);
  CHECK(launcher.out().back() == '\n');
}

TEST_CASE("output without newlines is forwarded in pieces and not accumulated") {
  Launcher launcher(ranks_that("head -c 5000000 /dev/zero | tr '\\0' x", 2));
  CHECK(launcher.end() == 0);
  const std::string out = launcher.out();
  CHECK(std::count(out.begin(), out.end(), 'x') == 10000000);
}

TEST_CASE("output of a single rank has no prefix, and the two streams stay separate") {
  Launcher launcher(ranks_that("echo result; echo trouble >&2", 1));
  CHECK(launcher.end() == 0);
  CHECK(launcher.out() == "result\n");
  CHECK(launcher.errors() == "trouble\n");
}

TEST_CASE("the first rank that fails determines the exit code and is named") {
  Launcher one(ranks_that("exit 5", 1));
  CHECK(one.end() == 5);
  CHECK(one.errors() == "trainopt: rank 0 ended with exit code 5\n");

  // The others run until shortly after rank 1 fails.
  const std::string others = "until test -e failing; do sleep 0.02; done; sleep 0.5; exit 7";
  Launcher first(ranks_that("test $RANK = 1 && touch failing && exit 3; " + others, 3));
  CHECK(first.end() == 3);
  CHECK(first.errors() == "trainopt: rank 1 ended with exit code 3; the others ended too\n");

  Launcher killed(ranks_that("test $RANK = 1 && touch failing && kill -9 $$; " + others));
  CHECK(killed.end() == 7);
  CHECK(killed.errors() == "trainopt: rank 1 was killed by signal 9 (Killed); the others ended too\n");

  Launcher late(ranks_that("test $RANK = 1 && sleep 0.5 && exit 4; exit 0"));
  CHECK(late.end() == 4);
}

TEST_CASE(
    "ranks that do not end by themselves are terminated, including those that ignore SIGTERM and their children") {
  LocalRanks spec = ranks_that("echo $$; test $RANK = 0 && exit 6; sleep 300");
  spec.term_delay_s = 0.2;
  Launcher mild(spec);
  CHECK(mild.end() == 6);
  CHECK(mild.errors() == "trainopt: rank 0 ended with exit code 6; the others were ended\n");

  // Rank 0 waits until rank 1 ignores SIGTERM.
  spec = ranks_that(
      "if test $RANK = 0; then until test -e deaf; do sleep 0.01; done; kill -9 $$; fi; trap '' TERM; touch deaf; echo "
      "$$; while true; do sleep 300; done");
  spec.term_delay_s = 0.1;
  spec.grace_s = 0.1;
  Launcher stubborn(spec);
  CHECK(stubborn.end() == 7);
  CHECK(stubborn.errors() == "trainopt: rank 0 was killed by signal 9 (Killed); the others were ended\n");
  const pid_t group = std::stoi(stubborn.out().substr(4));
  Launcher::wait_until([&] { return ::kill(-group, 0) != 0; });
  CHECK(::kill(-group, 0) != 0);
}

TEST_CASE("signals are forwarded once to every rank, and a rank stopped by one has not failed") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    INFO(number);
    // Rank 1 takes longer than term_delay_s to stop.
    LocalRanks spec = ranks_that(fmt::format(
        "trap 'echo got; test $RANK = 1 && sleep 0.5; exit {}' {}; echo ready; while true; do sleep 0.02; done",
        128 + number, number));
    spec.term_delay_s = 0.05;
    spec.grace_s = 0.05;
    Launcher launcher(spec);
    launcher.wait_for({"[0] ready", "[1] ready"});
    launcher.signal(number);
    CHECK(launcher.end() == 128 + number);
    CHECK(launcher.lines() == Lines{"[0] got", "[0] ready", "[1] got", "[1] ready"});
    CHECK(launcher.errors() == "");
  }
}

TEST_CASE("a second signal is forwarded too; ranks killed by a forwarded signal count as stopped") {
  Launcher twice(ranks_that("trap 'trap - TERM; echo once' TERM; echo ready; while true; do sleep 0.02; done"));
  twice.wait_for({"[0] ready", "[1] ready"});
  twice.signal(SIGTERM);
  twice.wait_for({"[0] once", "[0] ready", "[1] once", "[1] ready"});
  twice.signal(SIGTERM);
  CHECK(twice.end() == 128 + SIGTERM);
  CHECK(twice.errors() == "");

  Launcher survives(ranks_that("trap 'echo saved; exit 0' USR2; echo ready; while true; do sleep 0.02; done"));
  survives.wait_for({"[0] ready", "[1] ready"});
  survives.signal(SIGUSR2);
  CHECK(survives.end() == 0);
}

TEST_CASE("a rank that a signal kills before it handles signals ends the others, which would wait to meet it") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    LocalRanks spec = ranks_that(fmt::format(
        "test $RANK = 0 && trap '' {}; echo ready; i=0; while test $((i += 1)) -lt 3000; do sleep 0.02; done", number));
    Launcher launcher(spec);
    launcher.wait_for({"[0] ready", "[1] ready"});
    const auto asked = Clock::now();
    launcher.signal(number);
    CHECK(launcher.end() == 128 + number);
    CHECK(seconds_since(asked) < 30);  // the rank waits for 60
    CHECK(launcher.errors() == "");
  }
}

TEST_CASE("ranks of a launcher in the background of a script can be interrupted from their start") {
  Launcher launcher(ranks_that("grep SigIgn /proc/self/status | tr -d '\\t'"), SIGINT);
  CHECK(launcher.end() == 0);
  CHECK(launcher.lines() == Lines{"[0] SigIgn:0000000000000000", "[1] SigIgn:0000000000000000"});
}

TEST_CASE("a rank that fails while stopping counts as failed") {
  Launcher launcher(ranks_that("trap 'exit $((RANK ? 8 : 143))' TERM; echo ready; while true; do sleep 0.02; done"));
  launcher.wait_for({"[0] ready", "[1] ready"});
  launcher.signal(SIGTERM);
  CHECK(launcher.end() == 8);
  CHECK_THAT(launcher.errors(), ContainsSubstring("rank 1 ended with exit code 8"));
}

TEST_CASE("after a killed or lost rank all ranks are started again, on another port, as often as allowed") {
  LocalRanks spec = ranks_that(
      "echo $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS $MASTER_PORT; test $RANK = 0 || exit 7; sleep 300");
  spec.max_restarts = 2;
  spec.master_address = "10.0.0.1";
  spec.master_port = 5000;
  spec.term_delay_s = 0.2;
  Launcher lost(spec);
  CHECK(lost.end() == 7);
  CHECK(lost.lines() ==
        Lines{"[0] 0/2 5000", "[0] 1/2 5001", "[0] 2/2 5002", "[1] 0/2 5000", "[1] 1/2 5001", "[1] 2/2 5002"});
  const std::string sentence = "trainopt: rank 1 ended with exit code 7; the others were ended";
  CHECK(lost.errors() == sentence + "; restart 1 of 2\n" + sentence + "; restart 2 of 2\n" + sentence + "\n");

  spec.command.back() = "test $TORCHELASTIC_RESTART_COUNT = 1 || kill -9 $$";
  Launcher killed(spec);
  CHECK(killed.end() == 0);
  CHECK_THAT(killed.errors(), ContainsSubstring("(Killed)") && ContainsSubstring("; restart 1 of 2\n"));
}

TEST_CASE("ranks are not started again after a failure that would repeat, nor after a signal") {
  LocalRanks spec = ranks_that("echo $TORCHELASTIC_RESTART_COUNT; exit 2", 1);
  spec.max_restarts = 2;
  Launcher wrong(spec);
  CHECK(wrong.end() == 2);
  CHECK(wrong.out() == "0\n");

  // A rank that is lost while all stop.
  spec.command.back() = "trap 'exit 7' TERM; echo $TORCHELASTIC_RESTART_COUNT; while true; do sleep 0.02; done";
  Launcher stopped(spec);
  stopped.wait_for({"0"});
  stopped.signal(SIGTERM);
  CHECK(stopped.end() == 7);
  CHECK(stopped.out() == "0\n");
}

TEST_CASE("an ignored SIGHUP (nohup) is not forwarded") {
  Launcher launcher(ranks_that("echo ready; until test -e go; do sleep 0.02; done"), SIGHUP);
  launcher.wait_for({"[0] ready", "[1] ready"});
  launcher.signal(SIGHUP);
  launcher.signal(SIGINT);
  CHECK(launcher.end() == 128 + SIGINT);
}

TEST_CASE("ranks do not outlive a launcher that is killed") {
  Launcher launcher(ranks_that("trap '' TERM HUP INT; echo $$; while true; do sleep 0.02; done"));
  Launcher::wait_until([&] { return launcher.lines().size() == 2; });
  const Lines lines = launcher.lines();
  REQUIRE(lines.size() == 2);
  launcher.signal(SIGKILL);
  CHECK(launcher.end() == -SIGKILL);
  for (const auto& line : lines) {
    const pid_t rank = std::stoi(line.substr(4));
    Launcher::wait_until([&] { return ::kill(rank, 0) != 0; });
    CHECK(::kill(rank, 0) != 0);
  }
}

namespace {

/// Runs run_local_ranks() in its own process, which writes to a pipe that the test reads.
struct Piped {
  explicit Piped(const LocalRanks& spec) {
    REQUIRE(::pipe(pipe.data()) == 0);
    process = ::fork();
    if (process == 0) {
      ::dup2(pipe[1], STDOUT_FILENO);
      ::close(pipe[0]);
      ::close(pipe[1]);
      ::_exit(run_local_ranks(spec));
    }
    ::close(pipe[1]);
  }
  /// The exit code, -1 after a minute without one.
  int end() const {
    int status = 0;
    bool ended = false;
    Launcher::wait_until([&] { return ended = ::waitpid(process, &status, WNOHANG) == process; });
    if (ended) return WEXITSTATUS(status);
    ::kill(process, SIGKILL);
    ::waitpid(process, &status, 0);
    return -1;
  }
  std::array<int, 2> pipe{};
  pid_t process = -1;
};

}  // namespace

TEST_CASE("a reader that goes away does not end the ranks") {
  const Piped launcher(
      ranks_that("for n in 1 2 3 4 5; do head -c 100000 /dev/zero | tr '\\0' '\\n'; sleep 0.02; done; exit 0"));
  ::close(launcher.pipe[0]);
  CHECK(launcher.end() == 0);
}

TEST_CASE("signals reach the ranks even if the reader does not read") {
  const Piped launcher(
      ranks_that("trap 'exit 143' TERM; while true; do head -c 50000 /dev/zero | tr '\\0' '\\n'; done"));
  int before = 0, waiting = 0;
  Launcher::wait_until([&] {  // until the pipe is full and nothing is added any more
    before = waiting;
    ::usleep(300000);
    return ::ioctl(launcher.pipe[0], FIONREAD, &waiting) != 0 || (waiting > 0 && waiting == before);
  });
  ::kill(launcher.process, SIGTERM);
  CHECK(launcher.end() == 143);
  ::close(launcher.pipe[0]);
}

TEST_CASE("a slow reader gets every line") {
  const Piped launcher(ranks_that("head -c 300000 /dev/zero | tr '\\0' '\\n'"));
  ::usleep(300000);  // by now the ranks have ended or are blocked
  int64_t lines = 0;
  char piece[65536];
  for (ssize_t count; (count = ::read(launcher.pipe[0], piece, sizeof piece)) > 0;)
    lines += std::count(piece, piece + count, '\n');
  ::close(launcher.pipe[0]);
  CHECK(launcher.end() == 0);
  CHECK(lines == 600000);
}

TEST_CASE("a background process that holds a rank's streams does not delay the launcher") {
  Launcher launcher(ranks_that("(sleep 30; echo late) & echo done; echo $!"));
  CHECK(launcher.end() == 0);
  CHECK_THAT(launcher.out(),
             ContainsSubstring("[0] done\n") && ContainsSubstring("[1] done\n") && !ContainsSubstring("late"));
  for (const auto& line : launcher.lines())
    if (const int left = std::atoi(line.substr(4).c_str()); left > 1) ::kill(left, SIGKILL);
}

TEST_CASE("a program that cannot be started gives one error and leaves no process or blocked signal") {
  LocalRanks spec = ranks_that("", 3);
  spec.command = {"/no/such/program", "run"};
  CHECK_THROWS_WITH(run_local_ranks(spec), "cannot start rank 0: No such file or directory: /no/such/program");
  spec.command = {"/etc/passwd"};
  CHECK_THROWS_WITH(run_local_ranks(spec), "cannot start rank 0: Permission denied: /etc/passwd");
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  sigset_t mask;
  ::sigprocmask(SIG_BLOCK, nullptr, &mask);
  CHECK_FALSE(sigismember(&mask, SIGTERM));
}

TEST_CASE("free_local_port returns ports that the kernel gives to no outgoing connection") {
  for (int time = 0; time < 20; ++time) {
    const int port = free_local_port();
    CHECK((port >= 10'000 && port < 32'768));
  }
}
