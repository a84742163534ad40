// An arm in a process of its own: for plans whose process settings differ, and where memory and start-up time must be
// those of the arm alone.
#pragma once

#include "base/error.h"
#include "compare/arms/arm.h"

#include <sys/types.h>

#include <functional>
#include <string>

namespace trainopt {

class ArmProcess : public Arm {
 public:
  /// Starts `program arm` on `spec.folder`, with its recipe.yaml and arm.json. Throws UserError with the arm's own
  /// message and exit code if the arm cannot be created.
  ArmProcess(const std::filesystem::path& program, const ArmSpec& spec);
  ~ArmProcess() override;

  void limit_turns(const TurnLimit& limit) override { limit_ = limit; }
  Turn turn(int64_t steps) override;
  ArmFacts facts() override;
  int64_t steps_taken() const override { return steps_; }
  const std::filesystem::path& folder() const override { return folder_; }

 private:
  Json send_and_receive(const Json& request);
  Json receive();
  void wait_for_answer();
  std::string describe_exit();
  void end();

  std::filesystem::path folder_;
  std::optional<ArmRendezvous> rendezvous_;
  TurnLimit limit_;
  pid_t process_ = -1;
  int socket_ = -1;
  int64_t steps_ = 0;
  std::string buffer_;
};

/// to_json() of an arm's spec, for its process.
std::filesystem::path spec_file(const std::filesystem::path& arm_folder);

// The loop of an arm's own process: reads requests, one JSON object per line, and answers each with one.
//   {"turn": 3, "most_s": 20} → {"turn": {…}}      {"facts": true} → {"facts": {…}}
//   on failure → {"error": "…", "exit_code": 5, …}
// A turn ends early after `most_s` seconds, if that is a number, and at {"stop": true}, which has no answer.

/// A line of JSON on a descriptor. read_json_line() returns nullopt at its end; write_json_line() throws
/// UserError(peer) if the other side has closed it.
void write_json_line(int fd, const Json& json);
std::optional<Json> read_json_line(int fd, std::string& buffer);

/// What an exception means for the user.
struct Failure {
  std::string message;
  ExitCode code = ExitCode::bug;
  bool reported_by_other_rank = false;  ///< the cause is on another rank
};
using Explain = std::function<Failure(const std::exception&)>;
/// A UserError's own message and code; for other exceptions the message and `bug`.
Failure explain_plainly(const std::exception& error);

/// Creates the arm, which must outlive this call, sends {"ready": true}, and answers until the other side closes. An
/// error is sent once and ends the service. Returns the error's exit code, or 0.
int serve_arm(int fd, const std::function<Arm&()>& make, const Explain& explain);

}  // namespace trainopt
