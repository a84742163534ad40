// This process among the ranks of its job. Alone, it is first, decides everything and notifies nobody.
#pragma once

#include "app/explain.h"
#include "comm/job.h"
#include "comm/launch_environment.h"
#include "recipe/recipe_io.h"

#include <functional>
#include <memory>
#include <optional>

namespace trainopt {

class JobMember {
 public:
  /// Meets the other ranks, if there are any. Throws UserError.
  JobMember(const Launch& launch, const Recipe& recipe);

  const RankPosition& position() const { return position_; }
  bool is_first() const { return position_.is_first(); }
  bool alone() const { return !job_; }
  /// This rank's share of the machine's cores; null: alone, all that it may use.
  std::optional<int> cores() const;
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }
  /// The device is known: from here on tensors can be exchanged.
  void open_communicator(at::Device device, const NcclConfig& nccl);

  void at(const char* stage, int64_t steps) noexcept;
  /// `make` runs on rank 0; the others receive what it returned. `what` names it in the job's store.
  Json from_rank_0(const std::string& what, const std::function<Json()>& make);
  /// On rank 0 the lists of all ranks as one, each item once; elsewhere empty.
  Json gathered_on_rank_0(const std::string& what, const Json& mine);
  std::function<void(const std::string&, const std::string&)> put() const;
  std::function<std::string(const std::string&)> get() const;

  struct End : Explained {
    bool reported_elsewhere = false;  ///< by another rank
  };
  /// What a failure means for the user. The first call notifies the other ranks, or asks them why this one stands
  /// alone.
  const End& end_of(const std::exception& error);
  /// Waits until all ranks are here: a launcher ends those that are not when one ends with another code than 0.
  void leave_together();
  /// Ends the process. Exchanges that will never be answered would hold up an orderly end.
  [[noreturn]] void leave_alone(int code);

 private:
  RankPosition position_;
  std::unique_ptr<Job> job_;
  std::shared_ptr<Communicator> communicator_;
  std::optional<End> end_;
};

}  // namespace trainopt
