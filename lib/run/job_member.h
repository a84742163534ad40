// This process as one of the ranks of its job. A single process is rank 0, decides everything and notifies nobody.
#pragma once

#include "comm/job.h"
#include "comm/launch/launch_environment.h"
#include "recipe/recipe_io.h"
#include "run/explain.h"

#include <functional>
#include <memory>
#include <optional>

namespace trainopt {

class JobMember {
 public:
  /// Connects to the other ranks, if there are any, which must have the same recipe. Throws UserError.
  JobMember(const Launch& launch, const Recipe& recipe);
  /// Connects to the other ranks of a measurement, which must agree on several recipes: `recipes` is their text.
  JobMember(const Launch& launch, double timeout_s, std::string recipes);
  /// Connects this process of an arm to its counterparts.
  JobMember(RendezvousOptions rendezvous, std::string recipes);

  const RankPosition& position() const { return position_; }
  bool is_first() const { return position_.is_first(); }
  bool is_single() const { return !job_; }
  const Restarts& restarts() const { return restarts_; }
  /// A mark that all attempts of a job with a key share, and no other job has; empty without a key.
  std::string mark() const;
  /// This rank's share of the machine's cores; null for a single process, which uses all that it may.
  std::optional<int> cores() const;
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }
  /// Called once the device is known; from then on, tensors can be exchanged.
  void open_communicator(at::Device device);
  /// One more communicator, independent of the others. Every rank must call it.
  std::shared_ptr<Communicator> connect(at::Device device, double min_timeout_s = 0);
  /// How another process of this rank joins its counterparts (Job::rendezvous_of); only with several ranks.
  RendezvousOptions rendezvous_of(const std::string& name) const { return job_->rendezvous_of(name); }
  bool has_failed(const std::string& name) const { return job_->has_failed(name); }

  void at(const char* stage, int64_t steps) noexcept;
  /// Runs `make` on rank 0 and returns its result on every rank. Every rank must call it. `what`: for the log and the
  /// timeout's message.
  Json from_rank_0(const std::string& what, const std::function<Json()>& make);
  /// The lists of all ranks merged, each item once, on rank 0; empty on the other ranks.
  Json gathered_on_rank_0(const std::string& what, const Json& mine);
  std::function<void(const std::string&, const std::string&)> put() const;
  std::function<std::string(const std::string&)> get() const;

  struct End : Explained {
    bool reported_by_other_rank = false;
  };
  /// What a failure means for the user. The first call reports it to the other ranks or, if the failure is a lost rank,
  /// finds out why that rank was lost.
  const End& end_of(const std::exception& error);
  /// Whether end_of() has been asked.
  bool has_ended() const { return end_.has_value(); }
  /// Waits for all ranks: a launcher kills those still running when one exits with a code other than 0.
  void finish_with_other_ranks();
  /// Ends the process without an orderly exit, which would wait for exchanges that are never answered.
  [[noreturn]] void exit_without_other_ranks(int code);

 private:
  RankPosition position_;
  std::string key_;  ///< as the launcher or the user gave it
  Restarts restarts_;
  std::unique_ptr<Job> job_;
  std::shared_ptr<Communicator> communicator_;
  std::optional<End> end_;
  int64_t texts_ = 0;  ///< number of texts from rank 0
};

/// Reports on standard error why the job ended, on one rank: the one that failed, or the first to notice that another
/// is gone.
void report_end(const JobMember::End& end, const JobMember& member);

}  // namespace trainopt
