#include "compare/measure_alone.h"

#include "base/counted.h"
#include "compare/turn_taker.h"
#include "device/process.h"
#include "metrics/format.h"
#include "metrics/other_load.h"
#include "metrics/summary.h"

#include <algorithm>

namespace trainopt {
namespace {

constexpr int64_t kTurnsOfProcess = 6;  // of an arm in a pair of processes: three blocks

ProcessTurns take_turns(Arm& arm, int64_t steps, const Observer& observer) {
  const auto cpus = allowed_cpus();
  const auto busy_before = busy_seconds(cpus);
  const double own_before = process_cpu_seconds();
  const auto began = Clock::now();
  ProcessTurns process;
  double of_arm = 0;
  while (static_cast<int64_t>(process.turns.size()) < kTurnsOfProcess &&
         (process.turns.empty() || !observer.stopped())) {
    process.turns.push_back(arm.turn(steps));
    if (arm.has_own_process()) of_arm += process.turns.back().cpu_s;
  }
  const double ours = process_cpu_seconds() - own_before + of_arm;
  if (const auto busy = busy_seconds(cpus); busy && busy_before)
    process.other_load_pct =
        100 * (*busy - *busy_before - ours) / (seconds_since(began) * static_cast<double>(cpus.size()));
  return process;
}

}  // namespace

double ProcessTurns::seconds_per_sample() const {
  double seconds = 0, samples = 0;
  for (const Turn& turn : turns) seconds += turn.seconds, samples += static_cast<double>(turn.samples);
  return seconds / samples;
}

void summarize_turns(MeasuredAlone& measured) {
  double seconds = 0, samples = 0, waited = 0;
  std::vector<double> step_ms;
  for (const ProcessTurns& process : measured.processes)
    for (const Turn& turn : process.turns) {
      seconds += turn.seconds;
      samples += static_cast<double>(turn.samples);
      waited += turn.data_wait_s;
      step_ms.insert(step_ms.end(), turn.step_ms.begin(), turn.step_ms.end());
    }
  measured.arm.samples_per_s = samples / seconds;
  measured.arm.data_wait_pct = 100 * waited / seconds;
  measured.arm.step_ms_p50.reset();
  if (!step_ms.empty()) measured.arm.step_ms_p50 = percentile(step_ms, 0.5);
}

MeasuredAlone measure_alone(const MakeArm& make, int64_t processes, const CompareOptions& options,
                            Clock::time_point until, const Observer& observer) {
  const auto began = Clock::now();
  MeasuredAlone result;
  const int64_t wanted = options.repeats.value_or(processes);
  int64_t steps = 0;
  double process_s = 0;  // the longest so far: a process that would not end in time is not started
  for (int64_t number = 0; result.ended.empty(); ++number) {
    const auto process_began = Clock::now();
    try {
      const WarmArm warm = make(number);
      if (number == 0) steps = turn_steps(warm, warm, options.turn_s).a;  // the same in all processes
      ProcessTurns turns = take_turns(*warm.arm, steps, observer);
      if (number == 0) {
        result.arm.name = warm.name;
        result.arm.facts = warm.arm->facts();
      }
      result.processes.push_back(std::move(turns));
    } catch (const UserError& error) {  // named recovery: the processes measured before it are kept
      if (number == 0) throw;
      result.failure = observer.stopped() ? "" : error.what();
      result.failure_code = error.code();
      result.ended = observer.stopped() ? "stopped" : "failed";
      break;
    }
    process_s = std::max(process_s, seconds_since(process_began));
    const auto& last = result.processes.back();
    observer.report(fmt::format("{}: {} samples/s", counted(number + 1, "process", "es"),
                                human_rate(1 / last.seconds_per_sample())));
    if (observer.stopped())
      result.ended = "stopped";
    else if (number + 1 >= wanted)
      result.ended = options.repeats ? "repeats" : "processes";
    else if (!options.repeats && after(process_s) > until)
      result.ended = "budget";
  }
  summarize_turns(result);
  result.seconds = seconds_since(began);
  return result;
}

}  // namespace trainopt
