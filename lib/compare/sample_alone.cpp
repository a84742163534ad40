#include "compare/sample_alone.h"

#include "base/counted.h"
#include "base/philox.h"
#include "compare/turn_taker.h"
#include "metrics/format.h"

#include <algorithm>

namespace trainopt {
namespace {

/// One process: creates the arm, takes its rounds, and ends it. Throws what the arm throws; nothing is then kept.
void take_process(int64_t number, const MakeArm& make, const CompareOptions& options, const Observer& observer,
                  std::vector<int64_t>& steps, Sampling& all) {
  const std::vector<WarmArm> arm{make(number)};
  if (number == 0) steps = turn_steps(arm, options.turn_s);  // the same in all processes
  TurnTaker turns(arm, steps, options.seed);
  std::vector<Round> rounds;
  const auto wanted = static_cast<size_t>(SetOptions{}.rounds);
  while (rounds.size() < wanted && (rounds.empty() || !observer.stopped())) {
    rounds.push_back(turns.next());
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
    try {
      take_process(number, make, options, observer, steps, all);
    } catch (const UserError& error) {  // named recovery: the processes measured before it are kept
      if (number == 0) throw;
      keep_failure(all, error, observer);
      break;
    }
    process_s = std::max(process_s, seconds_since(began));
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
