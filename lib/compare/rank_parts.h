// One rank's parts of all arms, and the channel on which rank 0 says what to do with them.
#pragma once

#include "compare/ranked_arms.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

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
