// Arms of a job with several ranks. Rank 0 measures and decides; every rank has its own part of each arm, which does
// what rank 0 says.
#pragma once

#include "comm/communicator.h"
#include "compare/arms/arm_process.h"
#include "compare/arms/make_arm.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// What a rank's process contributes besides its part of the arms.
struct RankDuties {
  /// How the processes of an arm with this name meet on the ranks.
  std::function<ArmRendezvous(const std::string& name)> rendezvous;
  /// What a failure in this process means, told to the other ranks. Further calls return the same.
  Explain explain;
  /// What this rank is about to do, a string literal: for the message if it is lost.
  std::function<void(const char*)> progress = [](const char*) {};
  /// The signal that asked this process to stop; 0: none.
  std::function<int()> stop_signal = [] { return 0; };
  /// On rank 0: another rank was asked to stop by this signal.
  std::function<void(int)> stopped_elsewhere = [](int) {};
};

class RankParts;

/// The factory on rank 0. A turn of its arms begins on all ranks together and takes as long as the slowest rank.
class RankedArms : public ArmFactory {
 public:
  /// `channel`: carries nothing else. `mine`: creates this rank's parts; must outlive this object.
  RankedArms(std::shared_ptr<Communicator> channel, ArmFactory& mine, RankDuties duties);
  ~RankedArms() override;

  /// Throws UserError with the message of the rank that failed. A failure in a process that the arms share ends the
  /// measurement: every later call then throws the same.
  std::shared_ptr<Arm> make(const ArmSpec& spec, ArmHost host) override;
  Plan plan(const ArmSpec& spec) const override;
  bool is_sound() const override;
  /// Throws that failure, if there was one.
  void require_sound() const;
  /// Lets serve_arms() on the other ranks return `exit_code`.
  void finish(int exit_code);

 private:
  std::shared_ptr<RankParts> parts_;
};

/// On every other rank: does what rank 0 says, until finish(); returns its exit code. Throws what arms in this process
/// throw. Arms with processes of their own report their failures to rank 0, which may go on without them.
int serve_arms(std::shared_ptr<Communicator> channel, ArmFactory& mine, RankDuties duties);

/// One turn of all ranks, from those of each: the slowest rank's time, steps that end with the last rank, losses, clock
/// and throttling of rank 0, and the CPU time of those ranks that share rank 0's CPUs.
Turn merged_turn(const std::vector<Turn>& of_ranks, const std::vector<bool>& shares_cpus);

// One rank's parts of all arms, and the channel on which rank 0 says what to do with them.

class RankParts {
 public:
  RankParts(std::shared_ptr<Communicator> channel, ArmFactory& mine, RankDuties duties)
      : channel_(std::move(channel)), mine_(mine), duties_(std::move(duties)) {}

  // On rank 0

  int64_t next_arm() { return arms_made_++; }
  /// Lets every rank do the same, and returns their answers in rank order. `recipe`: of an arm to make, which rank 0
  /// need not read again. Throws UserError as RankedArms::make() does.
  std::vector<Json> ask(const Json& request, const Recipe* recipe = nullptr);
  bool is_sound() const { return !failure_; }
  void require_sound() const {
    if (failure_) throw UserError(*failure_);
  }
  void finish(int exit_code);
  ArmFactory& mine() { return mine_; }

  // On the other ranks

  /// Does what rank 0 says until its finish(); returns that exit code. Throws what arms in this process throw.
  int serve();

 private:
  struct Part {
    std::shared_ptr<Arm> arm;
    bool own_process = false;
  };

  std::vector<Json> exchange(const Json& mine);
  /// A failure in a process of the arm's own is an answer; any other ends the measurement.
  Json answer(const Json& request, const Recipe* recipe);
  Json carry_out(const Json& request, const Recipe* recipe);
  Json make(const Json& request, const Recipe* recipe);
  Part& part(const Json& request) { return parts_[request.at("arm").get<int64_t>()]; }

  std::shared_ptr<Communicator> channel_;
  ArmFactory& mine_;
  RankDuties duties_;
  std::map<int64_t, Part> parts_;
  int64_t arms_made_ = 0;
  std::optional<UserError> failure_;
};

}  // namespace trainopt
