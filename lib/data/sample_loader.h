// Loads one sample into its position in a batch, and handles samples that cannot be read.
#pragma once

#include "base/philox.h"
#include "data/dataset.h"
#include "data/sampler.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace trainopt {

// The keys of all random draws for a sample, so that a loader thread and a device draw the same.

class SampleKeys {
 public:
  explicit SampleKeys(uint64_t seed)
      : augmentation_(mix_key(seed, "augmentation")), substitute_(mix_key(seed, "substitute")) {}

  /// Key of a sample's random transforms.
  uint64_t augmentation(int64_t epoch, int64_t sample) const {
    return mix_key(mix_key(augmentation_, static_cast<uint64_t>(epoch)), static_cast<uint64_t>(sample));
  }
  /// Substitutes for a bad sample at this position of the epoch's order: call next_below(samples) until a sample is
  /// usable.
  PhiloxStream substitutes(int64_t epoch, int64_t position) const {
    return PhiloxStream(mix_key(substitute_, static_cast<uint64_t>(epoch)), static_cast<uint64_t>(position));
  }

 private:
  uint64_t augmentation_, substitute_;
};

struct BadSamplePolicy {
  bool substitute = false;  ///< false: the first bad sample is an error
  int64_t budget = 0;       ///< number of distinct samples that may be substituted, in this process
  bool leaves_out = false;  ///< whoever takes the batches leaves the substitutes out; what is logged says so
  bool one_size = false;    ///< an image of a different size is an error, not a bad sample
};

/// A sample that could not be used.
struct RefusedSample {
  int64_t sample;
  std::string name, reason;  ///< Dataset::name_of() and BadSample::what()
  bool operator==(const RefusedSample&) const = default;
};

/// Safe to use from many threads, each with its own Scratch.
class SampleLoader {
 public:
  struct Scratch {
    LoadScratch load;
    int64_t epoch = -1;  ///< the epoch of `order`
    EpochOrder order;
  };
  /// `refused`: bad samples that this process found before, or before it was resumed; they count towards the budget.
  SampleLoader(std::shared_ptr<const Dataset> dataset, Pipeline pipeline, Sampler sampler, uint64_t seed,
               BadSamplePolicy policy, const std::vector<RefusedSample>& refused = {});

  /// Writes the sample at `position` of `epoch`'s order, or its substitute, and returns which one it is.
  /// Throws UserError(data) naming the file and the reason, or the first ten bad samples if the budget is exceeded or
  /// there is no good one; also for an image of a different size if the policy requires one size, and for a mapped file
  /// that lost a part.
  int64_t load(int64_t epoch, int64_t position, const SamplePlace& place, Scratch& scratch);

  /// Announces the sample at `position` of `order`, an epoch's.
  void expect(int64_t position, const EpochOrder& order) const { dataset_->expect(order(position)); }
  EpochOrder order(int64_t epoch) const { return sampler_.order(epoch); }

  const Dataset& dataset() const { return *dataset_; }
  const Pipeline& pipeline() const { return pipeline_; }
  /// All bad samples found so far, each once, by index; includes those that made load() throw.
  std::vector<RefusedSample> bad_samples() const;

 private:
  void record_bad(int64_t sample, const char* reason);
  void require_within_budget() const;

  std::shared_ptr<const Dataset> dataset_;
  Pipeline pipeline_;
  Sampler sampler_;
  SampleKeys keys_;
  BadSamplePolicy policy_;
  mutable std::mutex mutex_;
  std::map<int64_t, RefusedSample> bad_;
};

}  // namespace trainopt
