// Ceilings: what a job would gain if one of its costs were zero.
#pragma once

#include "compare/ablation.h"
#include "data/batch_source.h"
#include "train/optimizer/optimizer.h"

#include <vector>

namespace trainopt {

/// The costs of a job with this number of ranks: communication only with several.
std::vector<Ceiling> ceilings_of(int64_t ranks);

/// The ceilings of one recipe, with the arms in this process, for a job with this number of ranks. All intervals hold
/// simultaneously (Bonferroni). A ceiling that fails becomes a row with its reason.
std::vector<CeilingRow> measure_ceilings(const Recipe& recipe, int64_t ranks, const std::filesystem::path& folder,
                                         const CompareOptions& options, Clock::time_point until, ArmFactory& factory,
                                         const Observer& observer);

// Zero-cost replacements for the parts whose cost is measured.

/// The first step's micro-batches, kept on the device and returned again in every step.
class ReplayedBatches : public BatchSource {
 public:
  explicit ReplayedBatches(std::unique_ptr<BatchSource> source)
      : source_(std::move(source)), schedule_(source_->schedule()) {}

  Batch next() override;
  BatchSourceStats take_stats() override { return {}; }
  const BatchSchedule& schedule() const override { return schedule_; }

 private:
  std::unique_ptr<BatchSource> source_;  ///< null once a step is complete, which frees its threads and buffers
  BatchSchedule schedule_;
  std::vector<Batch> step_;
  size_t next_ = 0;
};

class NoUpdates : public Optimizer {
 public:
  void set_learning_rate(double) override {}
  void set_momentum(double) override {}
  void save(ArchiveWriter&) const override {}
  void load(const ArchiveReader&) override {}
  int64_t state_bytes() const override { return 0; }

 private:
  void update(Gradients&, const at::Tensor&) override {}
};

}  // namespace trainopt
