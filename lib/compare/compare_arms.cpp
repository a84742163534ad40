#include "compare/compare_arms.h"

#include "compare/process_pairs.h"
#include "recipe/recipe_io.h"

namespace trainopt {
namespace {

std::optional<Comparison> compare_in_process(const ArmsToCompare& arms, const CompareOptions& options,
                                             Clock::time_point until, ArmFactory& factory, const Observer& observer) {
  const Yardstick kind = yardstick(arms.a.recipe, arms.b.recipe);
  std::function<std::shared_ptr<Arm>()> make_twin;
  if (arms.with_numbers) make_twin = [&] { return factory.make(twin_of(arms.a, kind), arms.host); };
  const auto quarter = Clock::now() + (until - Clock::now()) / 4;
  const Baseline baseline = make_baseline(warm_up(arms.name_a, factory.make(arms.a, arms.host), options), make_twin,
                                          options, quarter, observer, kind);
  if (observer.stopped()) return std::nullopt;
  return compare(baseline, warm_up(arms.name_b, factory.make(arms.b, arms.host), options), options, until, observer);
}

/// The twin takes its first steps before the pairs begin, so that at most two arms exist at a time.
std::optional<Comparison> compare_own_processes(const ArmsToCompare& arms, const CompareOptions& options,
                                                Clock::time_point until, ArmFactory& factory,
                                                const Observer& observer) {
  Baseline twin;
  std::optional<Numerics> numerics;
  SetOptions pairs{
      .make = {fresh_arms(arms.name_a, arms.a, factory, options), fresh_arms(arms.name_b, arms.b, factory, options)},
      .first_set = {}};
  if (arms.with_numbers) {
    twin = make_twin_baseline(arms.a, yardstick(arms.a.recipe, arms.b.recipe), factory, options);
    pairs.first_set = [&](std::span<const WarmArm> pair) { numerics = numbers_of_pair(twin, pair[0], pair[1]); };
  }
  if (observer.stopped()) return std::nullopt;
  Comparison comparison = compare_processes(pairs, options, until, observer);
  comparison.numerics = std::move(numerics);
  return comparison;
}

}  // namespace

std::optional<Comparison> compare_arms(const ArmsToCompare& arms, const CompareOptions& options,
                                       Clock::time_point until, ArmFactory& factory, const Observer& observer) {
  const auto with_recipes = [&](Comparison comparison) {
    comparison.a.recipe = recipe_json(arms.a.recipe);
    comparison.b.recipe = recipe_json(arms.b.recipe);
    return comparison;
  };
  Observer keeps_recipes = observer;
  keeps_recipes.keep = [&](const Comparison& so_far) { observer.keep(with_recipes(so_far)); };
  auto comparison = (arms.host == ArmHost::own_process ? compare_own_processes : compare_in_process)(
      arms, options, until, factory, keeps_recipes);
  return comparison ? std::optional(with_recipes(std::move(*comparison))) : std::nullopt;
}

}  // namespace trainopt
