#include "compare/sampling/process_sets.h"

#include "base/philox.h"
#include "base/units.h"
#include "compare/sampling/turn_taker.h"
#include "metrics/format.h"
#include "statistics/sign_flips.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

/// Empty if the observer stopped it before all were made.
std::vector<WarmArm> make_set(const SetOptions& sets, int64_t number, uint64_t seed, const Observer& observer) {
  std::vector<WarmArm> arms(sets.make.size());
  for (const size_t arm : turn_order(mix_key(seed, "who is made first"), number, arms.size())) {
    arms[arm] = sets.make[arm](number);
    if (observer.stopped()) return {};
  }
  return arms;
}

/// Means over the sets of the facts that differ between processes; `before`: of `sets` sets.
void add_to_mean(ArmFacts& before, const ArmFacts& facts, int64_t sets) {
  const auto add = [&](double& mean, double value) { mean += (value - mean) / static_cast<double>(sets + 1); };
  add(before.time_to_first_step_s, facts.time_to_first_step_s);
  if (before.peak_memory_mib) add(*before.peak_memory_mib, facts.peak_memory_mib.value_or(0));
  for (size_t rank = 0; rank < std::min(before.ranks.size(), facts.ranks.size()); ++rank)
    if (auto& memory = before.ranks[rank].peak_memory_mib) add(*memory, facts.ranks[rank].peak_memory_mib.value_or(0));
}

class SetSampling {
 public:
  SetSampling(const SetOptions& sets, const CompareOptions& options, Clock::time_point until, const Observer& observer)
      : sets_(sets), options_(options), until_(until), observer_(observer), verdicts_(sets.make.size(), {}) {
    all.own_processes = true;
  }

  /// Creates set `number`, takes its rounds, and ends it. Throws what the arms throw. Nothing of the set is kept then,
  /// nor if its first round ends early, nor if the observer stops it before.
  void take_set(int64_t number) {
    const auto began = Clock::now();
    const std::string name = fmt::format("{} {}", sets_.make.size() == 2 ? "pair" : "set", number + 1);
    observer_.now(fmt::format("{}: starting {}", name, counted(std::ssize(sets_.make), "process", "es")));
    const std::vector<WarmArm> arms = make_set(sets_, number, options_.seed, observer_);
    if (arms.empty()) {
      all.ended = "stopped";
      return;
    }
    start_s_ = seconds_since(began);
    if (number == 0) begin(arms);
    catch_up(arms);
    TurnTaker turns(arms, steps_, mix_key(options_.seed, static_cast<uint64_t>(number)));
    const auto turns_began = Clock::now();
    std::vector<Round> rounds;
    while (static_cast<int64_t>(rounds.size()) < rounds_ && (rounds.empty() || !observer_.stopped())) {
      observer_.now(fmt::format("{}: round {} of {}", name, rounds.size() + 1, rounds_));
      Round round = turns.next();
      if (round.ended_early) break;
      rounds.push_back(std::move(round));
      rounds.back().set = number;
      round_s_ = seconds_since(turns_began) / static_cast<double>(rounds.size());
      if (number == 0 && rounds.size() == 1 && !options_.repeats) fit_rounds();
    }
    if (rounds.empty()) {
      all.ended = observer_.stopped() ? "stopped" : "budget";
      return;
    }
    std::vector<ArmFacts> facts;
    for (const WarmArm& arm : arms) facts.push_back(arm.arm->facts());
    for (size_t i = 0; i < arms.size() && number > 0; ++i) add_to_mean(all.facts[i], facts[i], number);
    if (number == 0) all.facts = std::move(facts);
    all.rounds.insert(all.rounds.end(), rounds.begin(), rounds.end());
    verdicts_.add(rounds);
    if (verdicts_.looks() > looks_) verdicts_.look();
    looks_ = verdicts_.looks();
  }

  const PairVerdicts& verdicts() const { return verdicts_; }

  /// About how long the next set takes.
  double set_s() const { return start_s_ + static_cast<double>(rounds_) * round_s_; }

  Sampling all;

 private:
  /// Called after the first round. Fewer sets than the level requires decide nothing, however many rounds they have.
  void fit_rounds() {
    const int64_t needed = pairs_for(pair_level(options_.level, sets_.make.size()));
    rounds_ = rounds_in_time(-seconds_since(until_), needed - 1, start_s_, round_s_, sets_.rounds);
  }

  void begin(const std::vector<WarmArm>& arms) {
    steps_ = turn_steps(arms, options_.turn_s);  // all sets have equal steps
    all.longest_stall = longest_stall(turn_seconds(arms, steps_));
    for (const WarmArm& arm : arms) all.names.push_back(arm.name);
    verdicts_ = PairVerdicts(arms.size(), verdict_options(options_, all.longest_stall, arms.size()));
    if (sets_.first_set) sets_.first_set(arms);
  }

  const SetOptions& sets_;
  const CompareOptions& options_;
  Clock::time_point until_;
  const Observer& observer_;
  PairVerdicts verdicts_;
  int looks_ = 0;
  std::vector<int64_t> steps_;
  int64_t rounds_ = sets_.rounds;
  double start_s_ = 0, round_s_ = 0;  // times in the last set
};

}  // namespace

MakeArm fresh_arms(std::string name, ArmSpec spec, ArmFactory& factory, std::shared_ptr<WarmUp> warm_up) {
  return [=, &factory](int64_t set) {
    ArmSpec of_set = spec;
    if (set > 0) of_set.folder += fmt::format("-{}", set + 1);
    WarmArm arm = (*warm_up)(name, [&] { return factory.make(of_set, ArmHost::own_process); });
    if (set > 0) remove_first_steps(of_set.folder);
    return arm;
  };
}

int64_t rounds_in_time(double seconds, int64_t sets, double start_s, double round_s, int64_t most) {
  const double of_set = seconds / static_cast<double>(std::max<int64_t>(1, sets)) - start_s;
  return static_cast<int64_t>(std::clamp(std::floor(of_set / round_s), 1.0, static_cast<double>(most)));
}

Sampling sample_sets(const SetOptions& sets, const CompareOptions& options, Clock::time_point until,
                     const Observer& observer, const LookCallback& look) {
  const auto sampling_began = Clock::now();
  SetSampling sampling(sets, options, until, observer);
  Sampling& all = sampling.all;
  double set_s = 0;  // the longest so far: a set that would not end in time is not started
  for (int64_t number = 0; all.ended.empty(); ++number) {
    const auto began = Clock::now();
    try {
      sampling.take_set(number);
    } catch (const UserError& error) {  // named recovery: the sets measured before it are kept
      if (number == 0) throw;
      keep_failure(all, error, observer);
    }
    all.seconds = seconds_since(sampling_began);
    if (!all.ended.empty()) break;
    // The first set also compares the numbers, which later ones do not.
    set_s = number == 0 ? sampling.set_s() : std::max(set_s, seconds_since(began));
    all.ended = stop_reason(sampling.verdicts(), options, after(set_s), until, observer);
    if (!sets.may_decide && all.ended == "decided") all.ended = after(set_s) > until ? "budget" : "";
    if (all.ended == "budget" && number + 1 < sets.min_sets && after(set_s) <= sets.latest) all.ended.clear();
    look(all, sampling.verdicts());
  }
  return std::move(all);
}

namespace {

/// One process: creates the arm, takes its rounds, and ends it. Throws what the arm throws; nothing is then kept.
void take_process(int64_t number, const MakeArm& make, const CompareOptions& options, const Observer& observer,
                  std::vector<int64_t>& steps, Sampling& all) {
  const std::vector<WarmArm> arm{make(number)};
  if (number == 0) steps = turn_steps(arm, options.turn_s);  // all processes have equal steps
  TurnTaker turns(arm, steps, options.seed);
  std::vector<Round> rounds;
  const auto wanted = static_cast<size_t>(SetOptions{}.rounds);
  while (rounds.size() < wanted && (rounds.empty() || !observer.stopped())) {
    Round round = turns.next();
    if (round.ended_early) break;
    rounds.push_back(std::move(round));
    rounds.back().set = number;
  }
  if (number == 0) {
    all.names = {arm.front().name};
    all.facts = {arm.front().arm->facts()};
  }
  all.rounds.insert(all.rounds.end(), rounds.begin(), rounds.end());
}

std::string_view end_of_alone(int64_t taken, int64_t wanted, const CompareOptions& options, Clock::time_point one_more,
                              Clock::time_point until, const Observer& observer) {
  if (observer.stopped()) return "stopped";
  if (taken >= wanted) return options.repeats ? "repeats" : "processes";
  return !options.repeats && one_more > until ? "budget" : "";
}

}  // namespace

Sampling sample_alone(const MakeArm& make, int64_t processes, const CompareOptions& options, Clock::time_point until,
                      const Observer& observer) {
  const auto sampling_began = Clock::now();
  Sampling all;
  all.own_processes = true;
  std::vector<int64_t> steps;
  double process_s = 0;  // the longest so far: a process that would not end in time is not started
  for (int64_t number = 0; all.ended.empty(); ++number) {
    const auto began = Clock::now();
    observer.now(fmt::format("process {} of {}", number + 1, options.repeats.value_or(processes)));
    try {
      take_process(number, make, options, observer, steps, all);
    } catch (const UserError& error) {  // named recovery: the processes measured before it are kept
      if (number == 0) throw;
      keep_failure(all, error, observer);
      break;
    }
    process_s = std::max(process_s, seconds_since(began));
    if (all.rounds.empty() || all.rounds.back().set != number) {  // its first round ended early
      all.ended = observer.stopped() ? "stopped" : "budget";
      break;
    }
    observer.report(fmt::format("{}: {} samples/s", counted(number + 1, "process", "es"),
                                human_rate(1 / seconds_per_sample(all).back())));
    all.ended =
        end_of_alone(number + 1, options.repeats.value_or(processes), options, after(process_s), until, observer);
  }
  all.seconds = seconds_since(sampling_began);
  return all;
}

std::vector<double> seconds_per_sample(const Sampling& alone) {
  std::vector<double> all;
  for (size_t begin = 0, end = 0; begin < alone.rounds.size(); begin = end) {
    end = end_of_measurement(alone.rounds, begin, true);
    double seconds = 0, samples = 0;
    for (size_t i = begin; i < end; ++i)
      for (const Turn& turn : alone.rounds[i].turns)
        seconds += turn.seconds, samples += static_cast<double>(turn.samples);
    all.push_back(seconds / samples);
  }
  return all;
}

}  // namespace trainopt
