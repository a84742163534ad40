#include "compare/arms/arm_process.h"

#include "scripted_arm.h"
#include "support/catch.h"

#include <sys/socket.h>
#include <unistd.h>

#include <thread>

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// An arm service in a thread, and the other end of its socket.
class Served {
 public:
  explicit Served(std::function<std::unique_ptr<Arm>()> make) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    socket = ends[0];
    thread_ = std::thread([make = std::move(make), end = ends[1]] {
      std::unique_ptr<Arm> arm;
      serve_arm(
          end, [&]() -> Arm& { return *(arm = make()); },
          [](const std::exception& error) {
            return Failure{error.what(), ExitCode::memory};
          });
      ::close(end);
    });
  }
  ~Served() {
    ::close(socket);
    thread_.join();
  }
  Json read() { return read_json_line(socket, buffer_).value(); }
  bool at_end() { return !read_json_line(socket, buffer_).has_value(); }

  int socket = -1;

 private:
  std::thread thread_;
  std::string buffer_;
};

}  // namespace

TEST_CASE("an arm's process reports that it is ready, takes turns and reports its facts") {
  Served served([] { return std::make_unique<ScriptedArm>(std::make_shared<SimulatedMachine>(1, 0.0), 0.5); });
  CHECK(served.read().contains("ready"));
  write_json_line(served.socket, {{"turn", 3}, {"most_s", nullptr}});
  const Turn turn = turn_from(served.read().at("turn"));
  CHECK(turn.steps == 3);
  CHECK(turn.seconds == Approx(1.5));
  write_json_line(served.socket, {{"turn", 3}, {"most_s", 1e6}});
  CHECK(turn_from(served.read().at("turn")).steps == 3);
  write_json_line(served.socket, {{"turn", 3}, {"most_s", -1}});
  CHECK(turn_from(served.read().at("turn")).steps == 1);
  write_json_line(served.socket, {{"facts", true}});
  CHECK(facts_from(served.read().at("facts")).time_to_first_step_s == 1.5);
}

TEST_CASE("a stop ends the turn in progress, and only that") {
  Served served([] { return std::make_unique<ScriptedArm>(std::make_shared<SimulatedMachine>(1, 0.0), 0.5); });
  served.read();
  // Both are there before the turn begins, as if the stop came during its first step.
  const std::string both = "{\"turn\": 3, \"most_s\": null}\n{\"stop\": true}\n";
  REQUIRE(::write(served.socket, both.data(), both.size()) == static_cast<ssize_t>(both.size()));
  CHECK(turn_from(served.read().at("turn")).steps == 1);
  write_json_line(served.socket, {{"turn", 3}, {"most_s", nullptr}});
  CHECK(turn_from(served.read().at("turn")).steps == 3);
}

TEST_CASE("an arm's error is sent with its message and exit code, and ends the service") {
  Served served([] {
    auto arm = std::make_unique<ScriptedArm>(std::make_shared<SimulatedMachine>(1), 0.5);
    arm->fails_after = 0;
    return arm;
  });
  served.read();
  write_json_line(served.socket, {{"turn", 3}, {"most_s", nullptr}});
  const Json answer = served.read();
  CHECK(answer.at("error") == "out of memory; lower data.batch_size");
  CHECK(answer.at("exit_code") == 5);
  CHECK(served.at_end());
}
