// trainopt find batch: the largest batch that fits, and the size beyond which throughput no longer grows.
#include "app/commands.h"
#include "app/status.h"
#include "base/files/files.h"
#include "base/print.h"
#include "base/run_command.h"
#include "base/units.h"
#include "recipe/make_plan.h"
#include "recipe/recipe_io.h"
#include "run/directory.h"
#include "run/signals.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>

namespace trainopt {
namespace fs = std::filesystem;
namespace {

constexpr double kMostRunS = 6;      // longest run that measures throughput
constexpr double kMostVerifyS = 15;  // longest run that verifies the largest size
constexpr int64_t kWarmupSteps = 2;
constexpr double kMostOverS = 3;  // beyond the budget

/// What a run of one size showed.
struct SizeRun {
  int64_t batch = 0;
  std::optional<int64_t> forecast_bytes;  ///< null: it cannot be planned
  std::string failure;                    ///< why it did not run; empty: it did
  double samples_per_s = 0;
  std::optional<double> noise;  ///< half-width of the throughput's interval, as a share of it; null: unknown
  double peak_mib = 0;

  double low() const { return samples_per_s * (1 - noise.value()); }
  double high() const { return samples_per_s * (1 + noise.value()); }
};

/// Whether the command said that it ran out of memory, or the kernel killed it.
bool ran_out_of_memory(const CommandEnd& end) {
  return end.code == static_cast<int>(ExitCode::memory) || end.code == 128 + SIGKILL;
}

class BatchFinder {
 public:
  BatchFinder(const Recipe& recipe, const Machine& machine, fs::path folder, double budget_s, Status& status)
      : recipe_(recipe),
        machine_(machine),
        status_(status),
        folder_(std::move(folder)),
        run_s_(std::min(kMostRunS, budget_s / 20)),
        verify_s_(std::min(kMostVerifyS, budget_s / 8)),
        until_(after(budget_s)) {
    const Plan plan = make_plan(recipe_, machine_);
    most_ = plan.data.samples();
    capacity_ = static_cast<double>(memory_capacity(plan));
    least_ = plan.model.layers.all_batch_norms() > 0 ? 2 : 1;
    create_folders(folder_);
    write_file(folder_ / "recipe.yaml", recipe_yaml(without_runs(recipe_)));
  }

  void run(const std::function<void(const SizeRun&)>& show) {
    const int64_t limit = largest_by_forecast();
    if (limit < least_)
      throw UserError(fmt::format("not even a batch of {} fits into memory, by forecast", counted(least_, "sample")),
                      ExitCode::memory);
    for (int64_t batch = least_; !over(); batch = std::min(2 * batch, limit)) {
      if (!take(batch, show)) break;
      if (!runs_.back().failure.empty() || batch == limit) break;
    }
    verify(show);
  }

  /// The largest that ran for the longer time; null if time was up, or the user stopped the search, before.
  std::optional<int64_t> largest() const { return largest_; }
  const std::vector<SizeRun>& runs() const { return runs_; }
  /// The smallest size that no larger one exceeds beyond the noise of both. Null if no larger one was measured, though
  /// it might fit, or if the noise of a size is unknown.
  std::optional<int64_t> enough() const {
    for (const SizeRun& run : runs_) {
      if (!run.failure.empty()) continue;
      if (!run.noise || (run.batch == largest_measured() && run.batch != largest_)) return std::nullopt;
      const bool grows = std::any_of(runs_.begin(), runs_.end(), [&](const SizeRun& other) {
        return other.failure.empty() && other.batch > run.batch && other.noise && other.low() > run.high();
      });
      if (!grows) return run.batch;
    }
    return std::nullopt;
  }

 private:
  int64_t largest_measured() const {
    int64_t largest = 0;
    for (const SizeRun& run : runs_)
      if (run.failure.empty() && run.noise) largest = std::max(largest, run.batch);
    return largest;
  }

  static Recipe without_runs(Recipe recipe) {
    recipe.run_dir.reset();
    recipe.checkpoint.resume = "none";
    recipe.checkpoint.every_n_steps.reset();
    recipe.checkpoint.at_end = false;
    recipe.evaluation.every_n_steps.reset();
    recipe.evaluation.at_end = false;
    recipe.train.epochs.reset();
    recipe.train.target = {};
    recipe.train.max_steps = int64_t{1} << 40;
    recipe.bench.warmup_steps = kWarmupSteps;
    return recipe;
  }

  bool over() const { return stop_signal() != 0 || Clock::now() > until_; }

  /// Bytes of a step; null: there is no forecast. Throws if no step can run at this size.
  std::optional<int64_t> forecast(int64_t batch) const {
    const auto plan = plan_with(recipe_, {fmt::format("data.batch_size={}", batch)}, machine_, {});
    if (!plan) throw UserError(fmt::format("the recipe allows no batch of {}", counted(batch, "sample")));
    try {
      return forecast_memory(*plan).breakdown.total();
    } catch (const NoForecast&) {  // named recovery: only running it shows whether it fits
      return std::nullopt;
    }
  }

  bool fits(int64_t batch) const {
    try {
      const auto bytes = forecast(batch);
      return !bytes || static_cast<double>(*bytes) <= MemoryForecast::kUsableShare * capacity_;
    } catch (const std::exception&) {  // named recovery: what cannot run at this size does not fit
      return false;
    }
  }

  /// The largest size that fits, found by doubling and halving; 0 if none does.
  int64_t largest_by_forecast() const {
    if (fits(most_)) return most_;
    int64_t good = 0, bad = least_;
    while (bad <= most_ && fits(bad)) {
      good = bad;
      bad *= 2;
    }
    bad = std::min(bad, most_);
    while (bad - good > std::max<int64_t>(1, good / 16)) {
      const int64_t middle = (good + bad) / 2;
      (fits(middle) ? good : bad) = middle;
    }
    return good;
  }

  /// Runs this size and adds the result. False: a signal stopped it.
  bool take(int64_t batch, const std::function<void(const SizeRun&)>& show) {
    const std::optional<SizeRun> run = measure(batch, run_s_);
    if (!run) return false;
    runs_.push_back(*run);
    show(*run);
    return true;
  }

  /// nullopt: a signal or the budget ended the run, which says nothing about the size.
  std::optional<SizeRun> measure(int64_t batch, double seconds) {
    SizeRun run{.batch = batch, .forecast_bytes = forecast(batch)};
    const fs::path folder = folder_ / fmt::format("batch-{}-{}", batch, ++number_);
    status_.now(fmt::format("a batch of {}, for {:.0f} s", batch, seconds));
    create_folders(folder);
    const CommandEnd end =
        run_self({"run", (folder_ / "recipe.yaml").string(), "--run-dir", (folder / "run").string(), "--quiet",
                  fmt::format("data.batch_size={}", batch), fmt::format("train.max_time={}s", seconds)},
                 folder, 1, {.stop = &stop_signal(), .seconds = std::max(1.0, -seconds_since(until_)) + kMostOverS});
    if (end.code != 0) {
      if (stop_signal() != 0 || end.took_too_long) return std::nullopt;
      run.failure = failure_of(end);
      if (!ran_out_of_memory(end))
        throw UserError(fmt::format("a batch of {} {}", batch, run.failure), exit_code_of(end));
      return run;
    }
    const Json summary = parse_json(read_file(folder / "run" / "summary.json", ExitCode::storage));
    const Json &rate = summary.at("samples_per_s"), &noise = summary.at("limit");
    if (summary.at("micro_split") != 1) run.failure = "memory ran out, and micro-batches were split";
    if (rate.is_null()) {
      run.failure = "no step was measured";
      return run;
    }
    run.samples_per_s = rate;
    if (noise.is_object() && noise.at("noise_pct").is_number()) run.noise = noise.at("noise_pct").get<double>() / 100;
    run.peak_mib = summary.at("peak_memory_mib").is_number() ? summary.at("peak_memory_mib").get<double>() : 0;
    if (const double share = run.peak_mib * 0x1p20 / capacity_; share > MemoryForecast::kUsableShare)
      run.failure = fmt::format("leaves too little: its peak is {:.0f} % of the memory, and {:.0f} % may be used",
                                100 * share, 100 * MemoryForecast::kUsableShare);
    return run;
  }

  /// Runs the largest for longer; if that fails, halves the distance to the largest that ran.
  void verify(const std::function<void(const SizeRun&)>& show) {
    int64_t good = 0, bad = 0;
    for (const SizeRun& run : runs_) (run.failure.empty() ? good : bad) = run.batch;
    while (bad - good > std::max<int64_t>(1, good / 16) && bad > 0 && !over()) {
      const int64_t middle = (good + bad) / 2;
      if (!take(middle, show)) break;
      (runs_.back().failure.empty() ? good : bad) = middle;
    }
    while (good >= least_ && !over()) {
      const std::optional<SizeRun> longer = measure(good, verify_s_);
      if (!longer) break;
      if (longer->failure.empty()) {
        largest_ = good;
        break;
      }
      runs_.push_back(*longer);
      show(*longer);
      good = good * 15 / 16;
    }
    std::stable_sort(runs_.begin(), runs_.end(), [](const SizeRun& a, const SizeRun& b) { return a.batch < b.batch; });
  }

  const Recipe& recipe_;
  const Machine& machine_;
  Status& status_;
  const fs::path folder_;
  const double run_s_, verify_s_;
  const Clock::time_point until_;
  int64_t least_ = 1, most_ = 1, number_ = 0;
  double capacity_ = 0;  ///< bytes
  std::vector<SizeRun> runs_;
  std::optional<int64_t> largest_;
};

Json to_json(const BatchFinder& finder) {
  const auto number = [](const auto& value) { return value ? Json(*value) : Json(); };
  Json json = {{"schema_version", 1},
               {"largest", number(finder.largest())},
               {"enough", number(finder.enough())},
               {"sizes", Json::array()}};
  for (const SizeRun& run : finder.runs())
    json["sizes"].push_back({{"batch_size", run.batch},
                             {"forecast_bytes", number(run.forecast_bytes)},
                             {"failure", run.failure.empty() ? Json() : Json(run.failure)},
                             {"samples_per_s", run.failure.empty() ? Json(run.samples_per_s) : Json()},
                             {"noise_pct", run.failure.empty() && run.noise ? Json(100 * *run.noise) : Json()},
                             {"peak_memory_mib", run.failure.empty() ? Json(run.peak_mib) : Json()}});
  return json;
}

std::string line_of(const SizeRun& run) {
  if (!run.failure.empty()) return fmt::format("{:>8}  {}", run.batch, run.failure);
  const std::string noise = run.noise ? fmt::format("±{:.1f} %", 100 * *run.noise) : "± unknown";
  return fmt::format("{:>8}  {:>10.1f} samples/s {}, {} at the peak, forecast {}", run.batch, run.samples_per_s, noise,
                     human_bytes(run.peak_mib * 0x1p20),
                     run.forecast_bytes ? human_bytes(static_cast<double>(*run.forecast_bytes)) : "none");
}

void print(const BatchFinder& finder, const fs::path& folder) {
  if (const auto largest = finder.largest())
    print_out("largest that fits  {}, verified in a longer run\n", counted(*largest, "sample"));
  else
    print_out("largest that fits  not known: {} before it was verified\n",
              stop_signal() != 0 ? "the search was stopped" : "the time was up");
  if (const auto enough = finder.enough())
    print_out("throughput         no larger batch is faster than {}, beyond the noise\n", counted(*enough, "sample"));
  print_out("A larger batch changes the training unless the learning rate follows; {} has the runs\n", folder.string());
}

struct FindArguments {
  RecipeArguments recipe;
  std::string run_dir, budget = "5m";
  bool json = false;
};

double budget_of(const FindArguments& arguments) {
  const auto duration = parse_duration(arguments.budget);
  if (!duration || duration->seconds < 10)
    throw UserError("--budget must be a duration of at least 10s, such as 5m: " + arguments.budget);
  return duration->seconds;
}

}  // namespace

Command add_find_batch(CLI::App& find) {
  CLI::App* command = find.add_subcommand(
      "batch", "Find the largest batch that fits, and the size beyond which throughput no longer grows");
  const auto arguments = std::make_shared<FindArguments>();
  command->add_option("--budget", arguments->budget, "Time for everything, such as 5m")->capture_default_str();
  command->add_option("--run-dir", arguments->run_dir, "Write to this folder, new or empty");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  arguments->recipe.add_to(*command);
  return [=](const CommandContext& context) {
    refuse_several_ranks(context.environment, "trainopt find batch");
    handle_signals();
    const double budget_s = budget_of(*arguments);
    Recipe recipe = arguments->recipe.load(*command).recipe;
    if (recipe.data.global_batch_size)
      throw UserError(fmt::format("data.global_batch_size fixes the batch; remove it to look for another: {}",
                                  *recipe.data.global_batch_size));
    Recipe named = recipe;
    named.name = "find-batch-" + recipe.name;
    named.run_dir = arguments->run_dir.empty() ? std::nullopt : std::optional(arguments->run_dir);
    const Machine machine = this_machine(context.environment);
    make_plan(recipe, machine);  // reports what is wrong before anything is created
    const fs::path folder = fs::absolute(make_run_directory(named));
    std::optional<Status> status(std::in_place, context.output, budget_s);
    status->line(
        fmt::format("trying batches of {} in short runs, for at most {}", recipe.name, to_text(Duration{budget_s})));
    BatchFinder finder(recipe, machine, folder, budget_s, *status);
    finder.run([&](const SizeRun& run) {
      if (context.output.quiet || arguments->json) return;
      print_out("{}\n", line_of(run));
      std::fflush(stdout);
    });
    status.reset();
    write_file(folder / "result.json", json_text(to_json(finder), 2) + "\n");
    if (arguments->json)
      print_json(to_json(finder));
    else
      print(finder, folder);
    say_again(context.output);
    return stop_signal() != 0 ? 128 + stop_signal() : 0;
  };
}

}  // namespace trainopt
