// Diagnoses and comparisons for a tuning, each by this program in a process of its own: what crashes, runs out of
// memory or is killed is a result, and not the end of the tuning.
#pragma once

#include "base/clock.h"
#include "tuning/tuner.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>

namespace trainopt {

struct CommandBenchOptions {
  std::filesystem::path folder;  ///< of the tuning; each command gets a folder in it
  Recipe recipe;
  int64_t ranks = 1;  ///< above 1: commands start under `trainopt launch`
  double diagnosis_s = 12, least_trial_s = 15, most_trial_s = 60;
  Clock::time_point trials_until = {};  ///< the end of the last trial
  const std::atomic<int>* stop = nullptr;
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

class CommandBench : public TuningBench {
 public:
  explicit CommandBench(CommandBenchOptions options) : options_(std::move(options)) {}

  Diagnosis diagnose(const Words& changes) override;
  Trial compare(const Words& best, const Words& changed, double level) override;
  bool over() const override;

  struct Final {
    Trial trial;
    int64_t pairs = 0;  ///< of fresh processes
  };
  /// The recipe as it was against the recipe with `changes`, in pairs of fresh processes.
  Final confirm(const Words& changes, double level, double budget_s);
  /// Measures the machine's peaks unless they are known. A failure only makes estimates worse.
  void measure_peaks();

 private:
  std::filesystem::path new_folder(const std::string& name);
  /// Of a run for so long; null if the user stopped it. Throws UserError if it fails.
  Json summary_of_run(const std::filesystem::path& folder, const std::filesystem::path& recipe, double seconds) const;
  std::filesystem::path write_recipe(const std::filesystem::path& folder, const std::string& name,
                                     const Words& changes) const;
  Trial compare_in(const std::filesystem::path& folder, const Words& a, const Words& b, const Words& how);

  CommandBenchOptions options_;
};

}  // namespace trainopt
