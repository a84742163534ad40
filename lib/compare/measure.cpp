#include "compare/measure.h"

#include "base/units.h"
#include "compare/output/comparison_text.h"
#include "recipe/recipe_io.h"

#include <cmath>
#include <map>

namespace trainopt {
namespace {

std::string progress_text(const Comparison& c, const PairVerdicts& verdicts) {
  const std::string measured = counted(verdicts.measurements(), measurement_name(c));
  if (c.is_a_and_b()) {
    const SequentialVerdict& verdict = verdicts.of(0);
    return fmt::format("{}: {}, {}", measured, percent_faster(verdict.ratio(), verdict.interval()),
                       verdict.decided() ? text(verdict.verdict()) : "undecided");
  }
  return fmt::format("{}: {} of {} decided; {} is the fastest so far", measured, verdicts.decided_pairs(),
                     counted(static_cast<int64_t>(verdicts.pairs().size()), "pair"),
                     c.arms[c.fastest.arms.front()].name);
}

/// Judges what is sampled, and meanwhile reports it and lets the observer keep it.
class Judging {
 public:
  Judging(const CompareOptions& options, const Observer& observer)
      : comparison(empty_comparison(options)), observer_(observer) {}

  LookCallback look() {
    return [this](const Sampling& sampling, const PairVerdicts& verdicts) {
      Comparison so_far = comparison;
      so_far.sampling = sampling;
      if (sampling.ended.empty()) so_far.sampling.ended = "unfinished";
      judge(so_far, verdicts);
      observer_.report(progress_text(so_far, verdicts));
      if (sampling.ended.empty()) observer_.keep(with_whole_time(std::move(so_far)));
    };
  }

  /// nullopt: the user stopped it before the first round. Throws UserError if the time ended before.
  std::optional<Comparison> finish(Sampling sampling) {
    require_rounds(sampling.rounds.size(), observer_);
    if (sampling.rounds.empty()) return std::nullopt;
    comparison.sampling = std::move(sampling);
    judge(comparison);
    return with_whole_time(std::move(comparison));
  }

  Comparison comparison;  ///< what is known before the arms take turns

 private:
  /// Sets the time of the whole measurement, warm-up included. Warnings say how long more measurements would take,
  /// which is a matter of the turns alone, so it comes after them.
  Comparison with_whole_time(Comparison c) const {
    const double preparation_s = seconds_since(began_) - c.sampling.seconds;
    for (ToDecide& each : c.to_decide)
      if (each.budget_s > 0) each.budget_s += preparation_s;
    c.sampling.seconds = seconds_since(began_);
    for (PairResult& pair : c.pairs) pair.seconds = c.sampling.seconds;
    return c;
  }

  Clock::time_point began_ = Clock::now();
  const Observer& observer_;
};

/// The twins of the first arm, of each kind that some other arm needs.
using TwinsOfKinds = std::map<Yardstick, Twins>;

Yardstick yardstick_of(const ArmsToCompare& arms, size_t arm) {
  return yardstick(arms.specs.front().recipe, arms.specs[arm].recipe);
}

/// The numbers of each arm beside the first one's; nullopt for the first, and for all without twins.
std::vector<std::optional<Numerics>> numbers_of(const ArmsToCompare& arms, const TwinsOfKinds& twins,
                                                std::span<const WarmArm> warm) {
  std::vector<std::optional<Numerics>> all(warm.size());
  for (size_t arm = 1; arm < warm.size() && !twins.empty(); ++arm)
    all[arm] = compare_with_twins(twins.at(yardstick_of(arms, arm)), warm[0], warm[arm]);
  return all;
}

bool is_a_and_b(const ArmsToCompare& arms) { return arms.key.empty(); }

/// The arm's name where it is mentioned again and again.
std::string short_name(const ArmsToCompare& arms, size_t arm) {
  return is_a_and_b(arms) ? (arm == 0 ? "A" : "B") : arms.names[arm];
}

/// What is about to happen, before anything does.
void announce(const ArmsToCompare& arms, const CompareOptions& options, Clock::time_point until,
              const Observer& observer) {
  const std::string twins =
      arms.with_numbers ? fmt::format(", {} of the first one to compare numbers", counted(options.twins, "twin")) : "";
  if (is_a_and_b(arms))
    observer.report(fmt::format("A is {}; B is {}", arms.names[0], arms.names[1]));
  else
    observer.report(fmt::format("comparing {}", fmt::join(arms.names, ", ")));
  const std::string limit =
      options.repeats ? "" : fmt::format("; at most {}", to_text(Duration{std::round(-seconds_since(until))}));
  observer.report(
      fmt::format("{} to warm up each{}, then turns{}", counted(options.warmup_steps, "step"), twins, limit));
}

void say_if_shortened(const WarmUp& warm_up, const CompareOptions& options, const Observer& observer) {
  if (warm_up.steps() && *warm_up.steps() < options.warmup_steps)
    observer.report(fmt::format("{} to warm up, not {}: the budget is short for steps of this length",
                                counted(*warm_up.steps(), "step"), options.warmup_steps));
}

MakeTwin twins_of(const ArmSpec& a, Yardstick kind, ArmHost host, ArmFactory& factory, WarmUp& warm_up,
                  Clock::time_point until) {
  return [=, &factory, &warm_up](int64_t number) {
    return warm_up.twin(
        fmt::format("twin {}", number + 1), [&] { return factory.make(twin_of(a, kind, number), host); }, until);
  };
}

std::optional<Comparison> compare_in_process(const ArmsToCompare& arms, Judging& judging, const CompareOptions& options,
                                             Clock::time_point until, ArmFactory& factory, const Observer& observer) {
  const auto half = Clock::now() + (until - Clock::now()) / 2;
  WarmUp warm_up(options, limit_of(until, observer), std::ssize(arms.specs), arms.with_numbers ? options.twins : 0);
  const auto make = [&](size_t arm) {
    observer.report(fmt::format("warming up {}", short_name(arms, arm)));
    return warm_up(arms.names[arm], [&] { return factory.make(arms.specs[arm], arms.host); });
  };
  std::vector<WarmArm> warm{make(0)};
  say_if_shortened(warm_up, options, observer);
  TwinsOfKinds twins;
  for (size_t arm = 1; arm < arms.specs.size() && arms.with_numbers; ++arm) {
    const Yardstick kind = yardstick_of(arms, arm);
    if (twins.contains(kind) || observer.stopped()) continue;
    CompareOptions of_twin = options;
    if (!twins.empty()) of_twin.noise_blocks = 0;  // one twin shows the noise floor
    Baseline baseline = make_baseline(warm[0], twins_of(arms.specs[0], kind, arms.host, factory, warm_up, half),
                                      of_twin, half, observer, kind);
    twins[kind] = std::move(baseline.twins);
    if (baseline.noise) judging.comparison.noise = baseline.noise;
  }
  for (size_t arm = 1; arm < arms.specs.size(); ++arm) {
    if (observer.stopped()) return std::nullopt;
    if (!options.repeats && Clock::now() > with_grace(until)) require_rounds(0, observer);
    warm.push_back(make(arm));
  }
  if (observer.stopped()) return std::nullopt;
  judging.comparison.numerics = numbers_of(arms, twins, warm);
  return judging.finish(sample_rounds(warm, options, until, observer, judging.look()));
}

/// Twins take their first steps before the sets begin, so that no more processes exist at a time than arms.
std::optional<Comparison> compare_own_processes(const ArmsToCompare& arms, Judging& judging,
                                                const CompareOptions& options, Clock::time_point until,
                                                ArmFactory& factory, const Observer& observer) {
  const auto half = Clock::now() + (until - Clock::now()) / 2;
  const auto warm_up = std::make_shared<WarmUp>(options, limit_of(until, observer), std::ssize(arms.specs),
                                                arms.with_numbers ? options.twins : 0);
  TwinsOfKinds twins;
  SetOptions sets;
  for (size_t arm = 0; arm < arms.specs.size(); ++arm) {
    sets.make.push_back(fresh_arms(arms.names[arm], arms.specs[arm], factory, warm_up));
    if (arm == 0 || !arms.with_numbers || observer.stopped()) continue;
    const Yardstick kind = yardstick_of(arms, arm);
    if (!twins.contains(kind))
      twins[kind] = twins_in_processes(arms.specs[0], kind, factory, *warm_up, options, half, observer);
  }
  sets.first_set = [&](std::span<const WarmArm> warm) {
    say_if_shortened(*warm_up, options, observer);
    judging.comparison.numerics = numbers_of(arms, twins, warm);
  };
  if (observer.stopped()) return std::nullopt;
  return judging.finish(sample_sets(sets, options, until, observer, judging.look()));
}

}  // namespace

std::optional<Comparison> compare_arms(const ArmsToCompare& arms, const CompareOptions& options,
                                       Clock::time_point until, ArmFactory& factory, const Observer& observer) {
  announce(arms, options, until, observer);
  Judging judging(options, observer);
  judging.comparison.command = arms.command;
  judging.comparison.job = arms.job;
  judging.comparison.key = arms.key;
  for (const ArmSpec& spec : arms.specs) judging.comparison.recipes.push_back(recipe_json(spec.recipe));
  return (arms.host == ArmHost::own_process ? compare_own_processes : compare_in_process)(arms, judging, options, until,
                                                                                          factory, observer);
}

namespace {

/// Without a first round there is nothing to return.
Comparison require(std::optional<Comparison> comparison) {
  if (!comparison) throw UserError("stopped before the first round of turns");
  return *std::move(comparison);
}

}  // namespace

Comparison compare(const Baseline& baseline, WarmArm b, const CompareOptions& options, Clock::time_point until,
                   const Observer& observer) {
  Judging judging(options, observer);
  const std::vector<WarmArm> arms{baseline.a, std::move(b)};
  judging.comparison.noise = baseline.noise;
  return require(judging.finish(sample_rounds(arms, options, until, observer, judging.look())));
}

Comparison compare_in_process_pairs(SetOptions sets,
                                    const std::function<Numerics(std::span<const WarmArm> pair)>& numbers,
                                    const CompareOptions& options, Clock::time_point until, const Observer& observer) {
  Judging judging(options, observer);
  if (numbers)
    sets.first_set = [&](std::span<const WarmArm> pair) {
      judging.comparison.numerics = {std::nullopt, numbers(pair)};
    };
  return require(judging.finish(sample_sets(sets, options, until, observer, judging.look())));
}

Twins twins_in_processes(const ArmSpec& a, Yardstick kind, ArmFactory& factory, WarmUp& warm_up,
                         const CompareOptions& options, Clock::time_point until, const Observer& observer) {
  CompareOptions first_steps = options;
  first_steps.noise_blocks = 0;
  return make_baseline({}, twins_of(a, kind, ArmHost::own_process, factory, warm_up, until), first_steps, until,
                       observer, kind)
      .twins;
}

}  // namespace trainopt
