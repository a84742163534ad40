// An arm in a process of its own: for plans whose process settings differ, and where memory and start-up time must be
// those of the arm alone.
#pragma once

#include "compare/arm.h"
#include "compare/arm_plan.h"

#include <sys/types.h>

namespace trainopt {

class ArmProcess : public Arm {
 public:
  /// Starts `program arm` on `spec.folder`, with its recipe.yaml and arm.json. Throws UserError with the arm's own
  /// message and exit code if the arm cannot be created.
  ArmProcess(const std::filesystem::path& program, const ArmSpec& spec);
  ~ArmProcess() override;

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
  pid_t process_ = -1;
  int socket_ = -1;
  int64_t steps_ = 0;
  std::string buffer_;
};

/// to_json() of an arm's spec, for its process.
std::filesystem::path spec_file(const std::filesystem::path& arm_folder);

/// This program's own file, even if another has since been built in its place.
std::filesystem::path this_program();

}  // namespace trainopt
