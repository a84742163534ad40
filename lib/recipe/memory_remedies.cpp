#include "recipe/memory_remedies.h"

#include "base/counted.h"
#include "recipe/make_plan.h"
#include "recipe/validate.h"

#include <algorithm>

namespace trainopt {
namespace {

/// A change of a recipe, and the words on the command line that make it.
struct Change {
  std::string words;
  std::function<void(Recipe&)> make;
};

class Remedies {
 public:
  Remedies(const Recipe& recipe, const Plan& plan) : recipe_(recipe), plan_(plan), capacity_(memory_capacity(plan)) {}

  std::vector<std::string> find() const {
    std::vector<std::string> found;
    const auto add = [&](const std::optional<std::string>& words) {
      if (words) found.push_back(*words);
    };
    add(accumulation(plan_, recipe_, ""));
    add(smaller_batch());
    const std::vector<Change> all = changes();
    for (const Change& change : all) add(alone(change));
    if (found.empty()) add(together(all));
    return found;
  }

 private:
  bool fits(const Plan& plan) const { return forecast_memory(plan).breakdown.total() <= capacity_; }
  bool fits_with(Plan plan, int64_t batch_size) const {
    plan.data.batch_size = batch_size;
    return fits(plan);
  }

  std::vector<Change> changes() const {
    const OptimizationsConfig& now = recipe_.optimizations;
    std::vector<Change> all;
    if (!now.amp.on) all.push_back({"optimizations.amp=true", [](Recipe& r) { r.optimizations.amp.on = true; }});
    if (!now.set_to_none)
      all.push_back({"optimizations.set_to_none=true", [](Recipe& r) { r.optimizations.set_to_none = true; }});
    if (plan_.position.ranks == 1) return all;
    for (const auto strategy : {ShardingStrategy::zero1, ShardingStrategy::zero2, ShardingStrategy::zero3})
      if (strategy > recipe_.parallel.sharding_strategy)
        all.push_back({fmt::format("parallel.sharding_strategy={}", word_of(strategy)),
                       [strategy](Recipe& r) { r.parallel.sharding_strategy = strategy; }});
    return all;
  }

  /// The plan of a changed recipe; nullopt if it would be refused.
  std::optional<Plan> plan_of(const Recipe& changed) const {
    if (!validate(changed, plan_.position.ranks).empty()) return std::nullopt;
    try {
      return make_plan(changed, plan_.machine, plan_.position);
    } catch (const UserError&) {  // named recovery: a remedy that this machine refuses is none
      return std::nullopt;
    }
  }

  std::optional<std::string> alone(const Change& change) const {
    Recipe changed = recipe_;
    change.make(changed);
    const auto plan = plan_of(changed);
    return plan && fits(*plan) ? std::optional(change.words) : std::nullopt;
  }

  /// Every change that the recipe allows, and then smaller micro-batches.
  std::optional<std::string> together(const std::vector<Change>& all) const {
    Recipe changed = recipe_;
    std::optional<Plan> plan;
    std::string words;
    for (auto change = all.rbegin(); change != all.rend(); ++change) {  // the strongest strategy comes first
      if (words.find("sharding_strategy") != std::string::npos && change->words.starts_with("parallel.")) continue;
      Recipe next = changed;
      change->make(next);
      auto next_plan = plan_of(next);
      if (!next_plan) continue;
      changed = std::move(next);
      plan = std::move(next_plan);
      words += (words.empty() ? "" : " ") + change->words;
    }
    if (!plan) return std::nullopt;
    return fits(*plan) ? words : accumulation(*plan, changed, words + " ");
  }

  int64_t smallest_batch() const { return plan_.model.has_convolutions ? 2 : 1; }  // batch-norm needs two samples

  /// The largest micro-batch that fits without changing the global batch.
  std::optional<std::string> accumulation(const Plan& plan, const Recipe& recipe, const std::string& words) const {
    const int64_t batch = plan.data.batch_size;
    for (int64_t pieces = 2; batch / pieces >= smallest_batch(); ++pieces) {
      const int64_t size = batch / pieces;
      if (batch % pieces != 0 || !fits_with(plan, size)) continue;
      const bool follows = recipe.data.global_batch_size && !recipe.train.gradient_accumulation_steps;
      const std::string steps =
          follows ? "" : fmt::format(" train.gradient_accumulation_steps={}", plan.data.accumulation * pieces);
      const std::string norms =
          plan.model.has_convolutions ? fmt::format("; batch-norm then sees {} at once", counted(size, "sample")) : "";
      return fmt::format("{}data.batch_size={}{} (the same global batch{})", words, size, steps, norms);
    }
    return std::nullopt;
  }

  /// The largest batch that fits, whatever becomes of the global batch.
  std::optional<std::string> smaller_batch() const {
    if (recipe_.data.global_batch_size) return std::nullopt;
    int64_t fitting = 0, too_large = plan_.data.batch_size;
    while (too_large - fitting > 1) {
      const int64_t middle = (fitting + too_large) / 2;
      (middle < smallest_batch() || fits_with(plan_, middle) ? fitting : too_large) = middle;
    }
    if (fitting < smallest_batch() || !fits_with(plan_, fitting)) return std::nullopt;
    return fmt::format("data.batch_size={} (the largest that fits)", fitting);
  }

  const Recipe& recipe_;
  const Plan& plan_;
  int64_t capacity_;
};

}  // namespace

MemoryForecast make_memory_forecast(const Recipe& recipe, const Plan& plan) {
  MemoryForecast forecast{.peak = forecast_memory(plan), .capacity_bytes = memory_capacity(plan)};
  if (!forecast.fits()) forecast.remedies = Remedies(recipe, plan).find();
  return forecast;
}

}  // namespace trainopt
