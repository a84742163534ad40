// Diagnoses and comparisons for a tuning, each by this program in a process of its own: what crashes, runs out of
// memory or is killed is a result, and not the end of the tuning.
#pragma once

#include "base/clock.h"
#include "config/describe.h"
#include "tune/tuner.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

namespace trainopt {

enum class TuningGoal { speed, memory, price };
template <>
struct Choices<TuningGoal> {
  static constexpr std::array all = {Choice<TuningGoal>{"speed", TuningGoal::speed},
                                     Choice<TuningGoal>{"memory", TuningGoal::memory},
                                     Choice<TuningGoal>{"price", TuningGoal::price}};
};

struct CommandBenchOptions {
  std::filesystem::path folder;  ///< the tuning's folder; each command gets a folder in it
  Recipe recipe;
  Machine machine;
  TuningGoal goal = TuningGoal::speed;  ///< a job's machines have one price, so the cheapest recipe is the fastest
  int64_t ranks = 1;                    ///< above 1: commands start under `trainopt launch`
  double diagnosis_s = 12, least_trial_s = 15, most_trial_s = 60;  ///< a first look takes less than most_trial_s
  double most_peaks_s = 60;                                        ///< time for the machine's peaks
  Clock::time_point trials_until = {};                             ///< the end of the last trial
  const std::atomic<int>* stop = nullptr;
  std::function<void(const std::string&)> say = [](const std::string&) {};
  std::function<void(const std::string&)> now = [](const std::string&) {};  ///< what is done until the next call
};

class CommandBench : public TuningBench {
 public:
  explicit CommandBench(CommandBenchOptions options) : options_(std::move(options)) {}

  Diagnosis diagnose(const Words& changes) override;
  Trial compare(const Words& best, const Words& changed, double level, int64_t look) override;
  bool over() const override;
  bool stopped() const override { return options_.stop && *options_.stop != 0; }

  struct Final {
    Trial trial;
    std::filesystem::path folder;  ///< holds the original as a.yaml and the result as b.yaml
    int64_t pairs = 0;             ///< pairs of fresh processes
    Json before, after;            ///< {peak_memory_mib, price_per_million_samples} of the original and of the result
  };
  /// The recipe as it was against the recipe with `changes`, in pairs of fresh processes.
  Final confirm(const Words& changes, double level, double budget_s);
  /// Measures the machine's peaks unless they are known. A failure only makes estimates worse.
  void measure_peaks();

 private:
  Diagnosis diagnose_time(const Words& changes);
  /// How long a few turns over whole periods of both recipes take.
  double periods_s(const Recipe& a, const Recipe& b) const;
  /// Whether whole periods take longer than `seconds`, so that turns are of steps alone. If the change is one of
  /// intervals, or otherwise not measured by turns, says so in trial.failure.
  bool leaves_pauses_out(const Words& best, const Words& changed, double seconds, Trial& trial) const;
  /// The limit is what the memory holds; the candidates are those with a lower forecast.
  Diagnosis diagnose_memory(const Words& changes);
  std::filesystem::path new_folder(const std::string& name);
  /// The summary of a run for so long; null if the user stopped it. Throws UserError if it fails.
  Json summary_of_run(const std::filesystem::path& folder, const std::filesystem::path& recipe, double seconds) const;
  std::filesystem::path write_recipe(const std::filesystem::path& folder, const std::string& name,
                                     const Words& changes) const;
  /// What `compare` finds, as its JSON; null with the reason in `trial.failure` if it fails.
  Json compare_in(const std::filesystem::path& folder, const Words& a, const Words& b, const Words& how, double seconds,
                  Trial& trial);

  CommandBenchOptions options_;
  double step_s_ = 0;  ///< time of a step in the last diagnosis, with what comes between steps; 0: not known
};

// How a tuning reads on the console and in tuned.yaml.

/// Ratios as people say them, for one goal.
class TuningText {
 public:
  explicit TuningText(TuningGoal goal) : goal_(goal) {}

  /// "+31.0 %", "×3.20"; of memory and price "-24 %".
  std::string gain(double ratio) const;
  /// "+31.0 % (+29.8 % to +32.4 %)"; of memory "-24 %, throughput -3.1 %". Empty if nothing was measured.
  std::string measured(const Trial& trial) const;
  /// Two lines on the console.
  std::string line_of(const TuningStep& step, size_t number) const;
  /// Markdown: every change that was tried, kept or not and why.
  std::string table_of(const Tuning& tuning) const;
  /// Comments by key: what changed it and what it gained.
  std::map<std::string, std::string> comments(const Tuning& tuning) const;
  /// What the final comparison shows.
  std::string final_text(const CommandBench::Final& last) const;

 private:
  TuningGoal goal_;
};

Json to_json(const CommandBench::Final& last);

}  // namespace trainopt
