#include "compare/measure.h"

#include "base/units.h"
#include "compare/rotation.h"
#include "recipe/recipe_io.h"

#include <map>

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

Baseline make_twin_baseline(const ArmSpec& a, Yardstick kind, ArmFactory& factory, const CompareOptions& options) {
  const WarmArm twin = warm_up("twin", factory.make(twin_of(a, kind), ArmHost::own_process), options);
  Baseline baseline;
  baseline.twin_folder = twin.arm->folder();
  baseline.yardstick = kind;
  baseline.twin_first_steps = twin.first_steps;
  return baseline;
}

Numerics numbers_of_pair(Baseline twin, const WarmArm& a, const WarmArm& b) {
  twin.a = a;
  return numbers(twin, b);
}

Comparison compare_processes(const SetOptions& sets, const CompareOptions& options, Clock::time_point until,
                             const Observer& observer) {
  const std::function<Comparison(const Sampling&)> comparison = [&](const Sampling& sampling) {
    return comparison_of(sampling, options);
  };
  return comparison(sample_sets(sets, options, until, observer, report_and_keep(comparison, observer)));
}

// Rotations of several arms.

namespace {

/// The twins of the first arm, one of each kind that some other arm needs.
using Twins = std::map<Yardstick, Baseline>;

Yardstick yardstick_of(const ArmsToRotate& arms, size_t arm) {
  return yardstick(arms.specs.front().recipe, arms.specs[arm].recipe);
}

/// The numbers of each arm beside the first one's; nullopt for the first, and for all without twins.
std::vector<std::optional<Numerics>> numbers_of(const ArmsToRotate& arms, const Twins& twins,
                                                std::span<const WarmArm> warm) {
  std::vector<std::optional<Numerics>> all(warm.size());
  for (size_t arm = 1; arm < warm.size() && !twins.empty(); ++arm)
    all[arm] = numbers_of_pair(twins.at(yardstick_of(arms, arm)), warm[0], warm[arm]);
  return all;
}

void report_rounds(const Rotation& r, const PairVerdicts& verdicts, const Observer& observer) {
  const auto pairs = static_cast<int64_t>(verdicts.pairs().size());
  observer.report(fmt::format("{}: {} of {} decided; {} is the fastest so far",
                              counted(verdicts.measurements(), r.sampling.own_processes ? "set" : "round"),
                              verdicts.decided_pairs(), counted(pairs, "pair"), r.arms[r.fastest.arms.front()].name));
}

/// What all rotations share.
class Rotating {
 public:
  Rotating(const ArmsToRotate& arms, const CompareOptions& options, const Observer& observer, const KeepRotation& keep)
      : observer_(observer), keep_(keep) {
    result.job = arms.job;
    result.key = arms.key;
    result.level = options.level;
    result.min_effect = options.min_effect;
    result.seed = options.seed;
  }

  LookCallback look() {
    return [this](const Sampling& sampling, const PairVerdicts& verdicts) {
      Rotation so_far = result;
      so_far.sampling = sampling;
      so_far.sampling.seconds = seconds_since(began_);
      if (sampling.ended.empty()) so_far.sampling.ended = "unfinished";
      judge(so_far, verdicts);
      report_rounds(so_far, verdicts, observer_);
      if (sampling.ended.empty()) keep_(so_far);
    };
  }

  Rotation finish(Sampling sampling) {
    result.sampling = std::move(sampling);
    result.sampling.seconds = seconds_since(began_);
    judge(result);
    return std::move(result);
  }

  Rotation result;

 private:
  Clock::time_point began_ = Clock::now();
  const Observer& observer_;
  const KeepRotation& keep_;
};

std::optional<Rotation> rotate_in_process(const ArmsToRotate& arms, const CompareOptions& options,
                                          Clock::time_point until, ArmFactory& factory, const Observer& observer,
                                          const KeepRotation& keep) {
  Rotating rotating(arms, options, observer, keep);
  const auto quarter = Clock::now() + (until - Clock::now()) / 4;
  std::vector<WarmArm> warm{warm_up(arms.names[0], factory.make(arms.specs[0], arms.host), options)};
  Twins twins;
  for (size_t arm = 1; arm < arms.specs.size() && arms.with_numbers; ++arm) {
    const Yardstick kind = yardstick_of(arms, arm);
    if (twins.contains(kind) || observer.stopped()) continue;
    CompareOptions of_twin = options;
    if (!twins.empty()) of_twin.noise_blocks = 0;  // one twin shows the noise floor
    twins[kind] = make_baseline(
        warm[0], [&] { return factory.make(twin_of(arms.specs[0], kind), arms.host); }, of_twin, quarter, observer,
        kind);
    if (twins[kind].noise) rotating.result.noise = twins[kind].noise;
  }
  for (size_t arm = 1; arm < arms.specs.size(); ++arm) {
    if (observer.stopped()) return std::nullopt;
    warm.push_back(warm_up(arms.names[arm], factory.make(arms.specs[arm], arms.host), options));
  }
  rotating.result.numerics = numbers_of(arms, twins, warm);
  if (observer.stopped()) return std::nullopt;
  return rotating.finish(sample_rounds(warm, options, until, observer, rotating.look()));
}

/// Twins take their first steps before the sets begin, so that no more processes exist at a time than arms.
std::optional<Rotation> rotate_own_processes(const ArmsToRotate& arms, const CompareOptions& options,
                                             Clock::time_point until, ArmFactory& factory, const Observer& observer,
                                             const KeepRotation& keep) {
  Rotating rotating(arms, options, observer, keep);
  Twins twins;
  SetOptions sets;
  for (size_t arm = 0; arm < arms.specs.size(); ++arm) {
    sets.make.push_back(fresh_arms(arms.names[arm], arms.specs[arm], factory, options));
    if (arm == 0 || !arms.with_numbers || observer.stopped()) continue;
    const Yardstick kind = yardstick_of(arms, arm);
    if (!twins.contains(kind)) twins[kind] = make_twin_baseline(arms.specs[0], kind, factory, options);
  }
  sets.first_set = [&](std::span<const WarmArm> warm) { rotating.result.numerics = numbers_of(arms, twins, warm); };
  if (observer.stopped()) return std::nullopt;
  return rotating.finish(sample_sets(sets, options, until, observer, rotating.look()));
}

}  // namespace

std::optional<Rotation> rotate(const ArmsToRotate& arms, const CompareOptions& options, Clock::time_point until,
                               ArmFactory& factory, const Observer& observer, const KeepRotation& keep) {
  return (arms.host == ArmHost::own_process ? rotate_own_processes : rotate_in_process)(arms, options, until, factory,
                                                                                        observer, keep);
}

}  // namespace trainopt
