// Which change of a recipe takes away which part of a run's time.
#pragma once

#include "optimizations/info.h"
#include "recipe/make_plan.h"
#include "recipe/recipe_io.h"
#include "roofline/roofline.h"
#include "run/limit.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// What rules conclude from.
struct Situation {
  const Recipe& recipe;
  const Plan& plan;
  const RunTimes& times;
  const Limit& limit;
  std::optional<Roofline> peaks = {};          ///< null: not measured
  std::optional<double> page_faults = {};      ///< page faults in a step
  std::optional<double> memory_peak_pct = {};  ///< peak as a share of the device's memory

  /// A part's share of the time, from 0 to 1. "computing" is compute, memory bandwidth and launches together. "update"
  /// has the starts of its own operations, which the limit counts as launches. "per step" is what every step takes
  /// whatever its batch: launches, update and exchange.
  double share(std::string_view part) const;
};

struct Rule {
  const char* part;  ///< part of the time from which the change saves: see Situation::share()
  const char* what;  ///< "load with more threads"
  /// Overrides to try; empty where the rule does not apply.
  std::function<std::vector<Words>(const Situation&)> changes;
  /// The share of the part that one of `changes` saves, from 0 to 1.
  std::function<double(const Situation&, const Words&)> saved;
  /// How training changes. Cutting a batch otherwise is new_math with batch-norm.
  Exactness exactness;
  const char* needs;  ///< beyond what the plan checks; empty: nothing
  bool cuts_batch = false;
};

/// Every rule, in one table.
const std::vector<Rule>& rules();

struct Proposal {
  const Rule* rule = nullptr;
  Words change;
  Exactness exactness = Exactness::same_bits;
  double ratio = 1;            ///< estimated throughput after the change ÷ before
  bool stands_out = false;     ///< the gain is above the noise of the run's speed
  std::optional<double> from;  ///< the number that the change's first word replaces; null: not a number
  std::string evidence;        ///< "the loader is 31 % of the time"
};

/// Changes that would have an effect here, the most promising first. Those that a comparison would call *no effect* by
/// their estimate are left out.
std::vector<Proposal> propose(const Situation& situation);
/// The proposals without the alternatives of a rule's best change.
std::vector<Proposal> best_of_each_rule(const std::vector<Proposal>& proposals);

}  // namespace trainopt

namespace trainopt::conditions {

// When rules apply.

inline bool on_cpu(const Situation& s) { return s.plan.device.is_cpu(); }
inline bool has_gpu(const Situation& s) { return !on_cpu(s); }
inline bool has_ranks(const Situation& s) { return s.plan.position.ranks > 1; }
inline bool has_loader(const Situation& s) { return s.plan.data.dataset && !s.plan.data.device_dataset; }
inline bool loads_without_disk_cache(const Situation& s) {
  return has_loader(s) && s.recipe.data.cache.kind != CacheKind::disk;
}
inline bool has_threads(const Situation& s) { return has_loader(s) && s.plan.loader.num_workers > 0; }
/// Whether a cache in memory could help: for image folders always; for Parquet, and for files of a remote store, if
/// they are not cached on a disk. All other data is in memory or mapped anyway.
inline bool has_memory_cache(const Situation& s) {
  const DataConfig& data = s.recipe.data;
  const DataFormat& format = format_of(data.dataset);
  return format.caches_decoded || (loads_without_disk_cache(s) && (format.row_groups || s.times.storage));
}
inline bool reads_files_of_images(const Situation& s) {
  const ImageDataset* const images = s.plan.data.images();
  return images && format_of(s.recipe.data.dataset).decodes && !images->uniform_size();
}
inline bool convolves(const Situation& s) { return s.plan.model.layers.convolutions() > 0; }
/// Only zero3 exchanges more than plain data parallelism does: it gathers the weights once more.
inline bool gathers_twice(const Situation& s) { return s.recipe.parallel.sharding_strategy == ShardingStrategy::zero3; }
inline bool fills_memory(const Situation& s) { return s.memory_peak_pct.value_or(0) > 80; }

}  // namespace trainopt::conditions
