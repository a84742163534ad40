#include "recipe/memory_remedies.h"

#include "base/units.h"
#include "recipe/make_plan.h"
#include "recipe/recipe_io.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

namespace trainopt {
namespace {

/// The smallest micro-batch that the model accepts: batch-norm needs two samples.
int64_t smallest_micro_batch(const Plan& plan) { return plan.model.layers.all_batch_norms() > 0 ? 2 : 1; }

class Remedies {
 public:
  Remedies(const Recipe& recipe, const Plan& plan)
      : recipe_(recipe),
        plan_(plan),
        capacity_(static_cast<int64_t>(MemoryForecast::kUsableShare * static_cast<double>(memory_capacity(plan)))) {}

  std::vector<std::string> find() const {
    std::vector<std::string> found;
    if (const auto change = accumulation(plan_, recipe_)) found.push_back(*change);
    if (const auto change = smaller_batch()) found.push_back(*change);
    for (const Words& words : memory_switches(recipe_, plan_))
      if (const auto plan = plan_with(words); plan && fits(*plan)) found.push_back(text_of(words));
    if (found.empty())
      if (const auto change = together()) found.push_back(*change);
    return found;
  }

 private:
  int64_t peak(const Plan& plan) const {
    try {
      return forecast_memory(plan).breakdown.total();
    } catch (const std::exception&) {  // named recovery: what cannot run at this size is no remedy
      return std::numeric_limits<int64_t>::max();
    }
  }
  bool fits(const Plan& plan) const { return peak(plan) <= capacity_; }
  bool fits_with(Plan plan, int64_t batch_size, int64_t times_as_many = 1) const {
    plan.data.batch_size = batch_size;
    plan.data.accumulation *= times_as_many;
    return fits(plan);
  }

  std::optional<Plan> plan_with(const Words& words) const {
    return trainopt::plan_with(recipe_, words, plan_.machine, plan_.position);
  }

  /// Switch after switch, each time the one with which the least memory is needed, then smaller micro-batches.
  std::optional<std::string> together() const {
    const std::vector<Words> candidates = memory_switches(recipe_, plan_);
    Words words;
    Plan best = plan_;
    int64_t least = peak(best);
    for (bool less = true; less && least > capacity_;) {
      less = false;
      const Words before = words;
      for (const Words& added : candidates) {
        Words more = before;
        more.insert(more.end(), added.begin(), added.end());
        auto plan = plan_with(more);
        const int64_t needed = plan ? peak(*plan) : least;
        if (needed >= least) continue;
        less = true;
        least = needed;
        words = std::move(more);
        best = *std::move(plan);
      }
    }
    const std::string all = text_of(words);
    if (least <= capacity_) return all;
    const auto pieces = accumulation(best, recipe_);
    return pieces ? std::optional(all + (words.empty() ? "" : " ") + *pieces) : std::nullopt;
  }

  /// The largest micro-batch that fits without changing the global batch.
  std::optional<std::string> accumulation(const Plan& plan, const Recipe& recipe) const {
    const int64_t batch = plan.data.batch_size, least = smallest_micro_batch(plan);
    for (int64_t pieces = 2; batch / pieces >= least; ++pieces) {
      const Words words = in_more_micro_batches(recipe, plan, pieces);
      const int64_t size = batch / pieces;
      if (words.empty() || !fits_with(plan, size, pieces)) continue;
      const std::string norms = plan.model.layers.all_batch_norms() > 0
                                    ? fmt::format("; batch-norm then sees {} at once", counted(size, "sample"))
                                    : "";
      return fmt::format("{} (the same global batch{})", text_of(words), norms);
    }
    return std::nullopt;
  }

  /// The largest batch that fits, whatever becomes of the global batch.
  std::optional<std::string> smaller_batch() const {
    if (recipe_.data.global_batch_size) return std::nullopt;
    int64_t fitting = 0, too_large = plan_.data.batch_size;
    while (too_large - fitting > 1) {
      const int64_t middle = (fitting + too_large) / 2;
      (middle < smallest_micro_batch(plan_) || fits_with(plan_, middle) ? fitting : too_large) = middle;
    }
    if (fitting < smallest_micro_batch(plan_) || !fits_with(plan_, fitting)) return std::nullopt;
    return fmt::format("data.batch_size={} (the largest that leaves a tenth of the memory free)", fitting);
  }

  const Recipe& recipe_;
  const Plan& plan_;
  int64_t capacity_;
};

}  // namespace

MemoryForecast make_memory_forecast(const Recipe& recipe, const Plan& plan) {
  MemoryForecast forecast{.peak = forecast_memory(plan), .capacity_bytes = memory_capacity(plan)};
  if (!forecast.leaves_room()) forecast.remedies = Remedies(recipe, plan).find();
  return forecast;
}

void add_memory_forecast(const Recipe& recipe, Plan& plan) {
  try {
    plan.memory = make_memory_forecast(recipe, plan);
  } catch (const NoForecast& none) {  // named recovery: the plan says so
    plan.notes.emplace_back(none.what());
  }
}

std::vector<Words> memory_switches(const Recipe& recipe, const Plan& plan) {
  const int64_t ranks = plan.position.ranks;
  const auto is_valid = [&](const Words& words) { return with_words(recipe, words, ranks).has_value(); };
  const Json unchanged = recipe_json(recipe);
  Words words;
  for (const CatalogueEntry& entry : catalogue())
    if (entry.key.starts_with("optimizations.")) words.push_back(entry.key + "=" + entry.value);
  std::vector<Words> all;
  for (const std::string& word : words) {
    std::vector<Words> ways{{word}};
    for (const std::string& other : words) ways.push_back({other, word});
    const auto way = std::ranges::find_if(ways, is_valid);
    if (way != ways.end() && recipe_json(*with_words(recipe, *way, ranks)) != unchanged) all.push_back(*way);
  }
  if (ranks == 1) return all;
  for (const auto strategy : {ShardingStrategy::zero1, ShardingStrategy::zero2, ShardingStrategy::zero3})
    if (strategy != recipe.parallel.sharding_strategy)
      all.push_back({fmt::format("parallel.sharding_strategy={}", word_of(strategy))});
  return all;
}

Words in_more_micro_batches(const Recipe& recipe, const Plan& plan, int64_t pieces) {
  const int64_t batch = plan.data.batch_size;
  if (batch % pieces != 0 || batch / pieces < smallest_micro_batch(plan)) return {};
  Words words{fmt::format("data.batch_size={}", batch / pieces)};
  const bool follows = recipe.data.global_batch_size && !recipe.train.gradient_accumulation_steps;
  if (!follows) words.push_back(fmt::format("train.gradient_accumulation_steps={}", plan.data.accumulation * pieces));
  return words;
}

}  // namespace trainopt
