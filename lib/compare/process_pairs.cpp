#include "compare/process_pairs.h"

#include "base/philox.h"
#include "compare/comparison_warnings.h"
#include "compare/make_arm.h"
#include "compare/turn_taker.h"

#include <algorithm>

namespace trainopt {
namespace {

/// Means over pairs of the facts that differ between processes.
class Facts {
 public:
  void add(const ArmFacts& facts) {
    if (count_++ == 0) all_ = facts;
    start_s_ += facts.time_to_first_step_s;
    memory_mib_ += facts.peak_memory_mib.value_or(0);
    rank_memory_mib_.resize(all_.ranks.size());
    for (size_t rank = 0; rank < std::min(rank_memory_mib_.size(), facts.ranks.size()); ++rank)
      rank_memory_mib_[rank] += facts.ranks[rank].peak_memory_mib.value_or(0);
  }
  ArmFacts mean() const {
    ArmFacts result = all_;
    const auto pairs = static_cast<double>(count_);
    result.time_to_first_step_s = start_s_ / pairs;
    if (result.peak_memory_mib) result.peak_memory_mib = memory_mib_ / pairs;
    for (size_t rank = 0; rank < result.ranks.size(); ++rank)
      if (auto& memory = result.ranks[rank].peak_memory_mib) memory = rank_memory_mib_[rank] / pairs;
    return result;
  }

 private:
  ArmFacts all_;
  int64_t count_ = 0;
  double start_s_ = 0, memory_mib_ = 0;
  std::vector<double> rank_memory_mib_;
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

class PairSampling {
 public:
  PairSampling(const PairOptions& pairs, const CompareOptions& options, const Observer& observer)
      : pairs_(pairs), options_(options), observer_(observer), verdict_({}) {
    result_ = empty_comparison(options);
    result_.own_processes = true;
  }

  /// Creates pair `number`, takes its blocks, and ends it. Throws what the arms throw; nothing of the pair is then
  /// kept.
  void take_pair(int64_t number) {
    const Pair pair = make_pair(pairs_, number, options_.seed);
    if (number == 0) {
      steps_ = turn_steps(pair.a, pair.b, options_.turn_s);  // the same in all pairs
      result_.longest_stall = longest_stall(turn_seconds(pair.a, pair.b, steps_));
      verdict_ = sequential_verdict(result_, options_.precision);
      if (pairs_.first_pair) pairs_.first_pair(pair.a, pair.b);
    }
    TurnTaker turns(*pair.a.arm, *pair.b.arm, steps_, mix_key(options_.seed, static_cast<uint64_t>(number)));
    std::vector<Block> blocks;
    while (static_cast<int64_t>(blocks.size()) < pairs_.blocks && (blocks.empty() || !observer_.stopped())) {
      blocks.push_back(turns.next());
      blocks.back().pair = number;
    }
    const ArmFacts of_a = pair.a.arm->facts(), of_b = pair.b.arm->facts();
    facts_a_.add(of_a);
    facts_b_.add(of_b);
    name_a_ = pair.a.name;
    name_b_ = pair.b.name;
    result_.blocks.insert(result_.blocks.end(), blocks.begin(), blocks.end());
    verdict_.add(measurement_of(blocks));
  }

  const SequentialVerdict& verdict() const { return verdict_; }
  Comparison& result() { return result_; }

  Comparison so_far(double seconds) const {
    PairSampling copy = *this;
    copy.result_.ended = "unfinished";
    copy.result_.seconds = seconds;
    return copy.finish();
  }

  Comparison finish() {
    result_.a = result_of(name_a_, facts_a_.mean(), result_.blocks, true);
    result_.b = result_of(name_b_, facts_b_.mean(), result_.blocks, false);
    judge_blocks(result_);
    result_.warnings = warnings_of(result_);
    return std::move(result_);
  }

 private:
  const PairOptions& pairs_;
  const CompareOptions& options_;
  const Observer& observer_;
  Comparison result_;
  SequentialVerdict verdict_;
  TurnSteps steps_;
  Facts facts_a_, facts_b_;
  std::string name_a_, name_b_;
};

}  // namespace

MakeArm fresh_arms(std::string name, ArmSpec spec, ArmFactory& factory, const CompareOptions& options) {
  return [=, &factory](int64_t pair) {
    ArmSpec of_pair = spec;
    if (pair > 0) of_pair.folder += fmt::format("-{}", pair + 1);
    WarmArm arm = warm_up(name, factory.make(of_pair, ArmHost::own_process), options);
    if (pair > 0) remove_first_steps(of_pair.folder);
    return arm;
  };
}

Baseline make_twin_baseline(const ArmSpec& a, Yardstick kind, ArmFactory& factory, const CompareOptions& options) {
  const WarmArm twin = warm_up("twin", factory.make(twin_of(a, kind), ArmHost::own_process), options);
  Baseline baseline;
  baseline.twin_folder = twin.arm->folder();
  baseline.yardstick = kind;
  baseline.twin_first_steps = twin.first_steps;
  return baseline;
}

PairCallback compare_first_steps(const Baseline& twin, std::optional<Numerics>& numerics) {
  return [&](const WarmArm& a, const WarmArm& b) {
    Baseline baseline = twin;
    baseline.a = a;
    numerics = numbers(baseline, b);
  };
}

Comparison compare_processes(const PairOptions& pairs, const CompareOptions& options, Clock::time_point until,
                             const Observer& observer) {
  const auto comparison_began = Clock::now();
  PairSampling sampling(pairs, options, observer);
  Comparison& result = sampling.result();
  double pair_s = 0;  // the longest so far: a pair that would not end in time is not started
  for (int64_t number = 0; result.ended.empty(); ++number) {
    const auto began = Clock::now();
    try {
      sampling.take_pair(number);
    } catch (const UserError& error) {  // named recovery: the pairs measured before it are kept
      if (number == 0) throw;
      result.ended = keep_failure(result, error, observer);
      break;
    }
    pair_s = std::max(pair_s, seconds_since(began));
    result.ended = stop_reason(sampling.verdict(), options, after(pair_s), until, observer);
    if (!pairs.may_decide && result.ended == "decided") result.ended = after(pair_s) > until ? "budget" : "";
    if (result.ended == "budget" && number + 1 < pairs.min_pairs) result.ended.clear();
    report_progress(result, sampling.verdict(), observer);
    if (result.ended.empty()) observer.keep(sampling.so_far(seconds_since(comparison_began)));
  }
  result.seconds = seconds_since(comparison_began);
  return sampling.finish();
}

}  // namespace trainopt
