#include "recipe/memory_changes.h"

#include "recipe/make_plan.h"
#include "recipe/recipe_io.h"

#include <algorithm>

namespace trainopt {

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

int64_t smallest_micro_batch(const Plan& plan) { return plan.model.layers.batch_norms > 0 ? 2 : 1; }

}  // namespace trainopt
