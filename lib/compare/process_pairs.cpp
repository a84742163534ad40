#include "compare/process_pairs.h"

#include "base/philox.h"
#include "compare/comparison_warnings.h"
#include "compare/make_arm.h"
#include "compare/turn_taker.h"

#include <algorithm>

namespace trainopt {
namespace {

/// Means over pairs of what each process has alone.
class Facts {
 public:
  void add(const ArmFacts& facts) {
    if (count_++ == 0) all_ = facts;
    start_s_ += facts.time_to_first_step_s;
    memory_mib_ += facts.peak_memory_mib.value_or(0);
  }
  ArmFacts mean() const {
    ArmFacts result = all_;
    result.time_to_first_step_s = start_s_ / static_cast<double>(count_);
    if (result.peak_memory_mib) result.peak_memory_mib = memory_mib_ / static_cast<double>(count_);
    return result;
  }

 private:
  ArmFacts all_;
  int64_t count_ = 0;
  double start_s_ = 0, memory_mib_ = 0;
};

struct Pair {
  WarmArm a, b;
};

Pair make_pair(const PairOptions& pairs, int64_t number, uint64_t seed) {
  Pair pair;
  if (block_order(mix_key(seed, "who is made first"), number) == Order::abba) {
    pair.a = pairs.make_a(number);
    pair.b = pairs.make_b(number);
  } else {
    pair.b = pairs.make_b(number);
    pair.a = pairs.make_a(number);
  }
  return pair;
}

}  // namespace

MakeArm fresh_arms(std::string name, ArmSpec spec, const Machine& machine, const CompareOptions& options) {
  return [=](int64_t pair) {
    ArmSpec of_pair = spec;
    if (pair > 0) of_pair.folder += fmt::format("-{}", pair + 1);
    WarmArm arm = warm_up(name, make_arm(of_pair, machine, ArmHost::own_process), options);
    if (pair > 0) remove_first_steps(of_pair.folder);
    return arm;
  };
}

Comparison compare_processes(const PairOptions& pairs, const CompareOptions& options, Clock::time_point until,
                             const Observer& observer) {
  const auto comparison_began = Clock::now();
  Comparison result = empty_comparison(options);
  result.own_processes = true;
  SequentialVerdict verdict = sequential_verdict(result, options.precision);
  Facts facts_a, facts_b;
  TurnSteps steps;
  double pair_s = 0;  // the longest so far: a pair that would not end in time is not begun
  for (int64_t number = 0; result.ended.empty(); ++number) {
    const auto began = Clock::now();
    const Pair pair = make_pair(pairs, number, options.seed);
    if (number == 0) {
      steps = turn_steps(pair.a, pair.b, options.turn_s);  // the same in all pairs
      result.longest_stall = longest_stall(turn_seconds(pair.a, pair.b, steps));
      verdict = sequential_verdict(result, options.precision);
      if (pairs.first_pair) pairs.first_pair(pair.a, pair.b);
    }
    TurnTaker turns(*pair.a.arm, *pair.b.arm, steps, mix_key(options.seed, static_cast<uint64_t>(number)));
    const size_t before = result.blocks.size();
    for (int64_t block = 0; block < pairs.blocks && !(block > 0 && observer.stopped()); ++block) {
      result.blocks.push_back(turns.next());
      result.blocks.back().pair = number;
    }
    verdict.add(measurement_of(std::span(result.blocks).subspan(before)));
    facts_a.add(pair.a.arm->facts());
    facts_b.add(pair.b.arm->facts());
    pair_s = std::max(pair_s, seconds_since(began));
    result.ended = why_to_end(verdict, options, after(pair_s), until, observer);
    if (!pairs.may_decide && result.ended == "decided") result.ended = after(pair_s) > until ? "budget" : "";
    if (result.ended == "budget" && number + 1 < pairs.fewest_pairs) result.ended.clear();
    report_progress(result, verdict, observer);
    if (!result.ended.empty()) {
      result.a = result_of(pair.a.name, facts_a.mean(), result.blocks, true);
      result.b = result_of(pair.b.name, facts_b.mean(), result.blocks, false);
    }
  }
  judge_blocks(result);
  result.seconds = seconds_since(comparison_began);
  result.warnings = warnings_of(result);
  return result;
}

}  // namespace trainopt
