// Arms of a job with several ranks. Rank 0 measures and decides; every rank has its own part of each arm, which does
// what rank 0 says.
#pragma once

#include "comm/communicator.h"
#include "compare/arm_service.h"
#include "compare/make_arm.h"

#include <functional>
#include <memory>
#include <string>

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
ArmFacts merged_facts(const std::vector<ArmFacts>& of_ranks);

}  // namespace trainopt
