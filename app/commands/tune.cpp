// trainopt tune RECIPE: diagnose, change, measure, keep what pays.
#include "app/commands.h"
#include "app/run_directory.h"
#include "app/signals.h"
#include "app/tuning_bench.h"
#include "base/counted.h"
#include "base/files.h"
#include "base/units.h"
#include "comm/launch_environment.h"
#include "tuning/annotated_recipe.h"

#include <CLI/CLI.hpp>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace trainopt {
namespace fs = std::filesystem;
namespace {

struct TuneArguments {
  RecipeArguments recipe;
  std::string run_dir, budget = "15m";
  std::vector<std::string> allow;
  int64_t ranks = 1;
  bool json = false;
};

/// Of the time: the end, in which the original and the result are measured afresh.
constexpr double kShareOfFinal = 0.3;

std::string gain(double ratio) {
  return ratio < 2 ? fmt::format("{:+.1f} %", 100 * (ratio - 1)) : fmt::format("×{:.2f}", ratio);
}

std::string measured(const Trial& trial) {
  if (!trial.ratio) return "";
  return trial.interval
             ? fmt::format("{} ({} to {})", gain(*trial.ratio), gain(trial.interval->low), gain(trial.interval->high))
             : gain(*trial.ratio);
}

class TuneSession {
 public:
  TuneSession(const TuneArguments& arguments, const Recipe& recipe, const CommandContext& context)
      : arguments_(arguments),
        recipe_(recipe),
        context_(context),
        budget_s_(budget()),
        options_{.allow_new_math = allows_new_math()} {}

  int run() {
    const auto began = Clock::now();
    open_folder();
    CommandBench bench({.folder = folder_,
                        .recipe = recipe_,
                        .ranks = arguments_.ranks,
                        .diagnosis_s = std::min(12.0, budget_s_ / 10),
                        .least_trial_s = std::min(15.0, budget_s_ / 5),
                        .most_trial_s = std::max(60.0, budget_s_ / 8),
                        .trials_until = after((1 - kShareOfFinal) * budget_s_),
                        .stop = &stop_signal(),
                        .say = [this](const std::string& what) { say(what); }});
    bench.measure_peaks();
    size_t shown = tuning_.steps.size();
    tuning_ = tune(bench, options_, std::move(tuning_), [&](const Tuning& so_far) {
      for (; shown < so_far.steps.size(); ++shown) say(line_of(so_far.steps[shown], shown + 1));
      keep(so_far, Json());
    });
    Json last;
    if (const Words change = tuning_.change(); !change.empty() && stop_signal() == 0) {
      say("measuring the result against the original, in fresh processes");
      const double left = budget_s_ - seconds_since(began);
      last = json_of(bench.confirm(change, options_.level, std::max(0.2 * budget_s_, left)));
    }
    keep(tuning_, last);
    write_tuned();
    if (arguments_.json)
      print_json(result(last));
    else
      print(last);
    return stop_signal() != 0 ? 128 + stop_signal() : 0;
  }

 private:
  double budget() const {
    const auto duration = parse_duration(arguments_.budget);
    if (!duration || duration->seconds < 30)
      throw UserError("--budget must be a duration of at least 30s, such as 15m: " + arguments_.budget);
    return duration->seconds;
  }

  bool allows_new_math() const {
    for (const std::string& word : arguments_.allow)
      if (word != "new_math") throw UserError("--allow knows only new_math: " + word);
    return !arguments_.allow.empty();
  }

  void say(const std::string& what) const {
    if (context_.output.quiet || arguments_.json) return;
    std::printf("%s\n", what.c_str());
    std::fflush(stdout);
  }

  fs::path state_file() const { return folder_ / "tuning.json"; }

  /// A new folder, or that of the same tuning, which then continues.
  void open_folder() {
    if (!arguments_.run_dir.empty() && fs::exists(fs::path(arguments_.run_dir) / "tuning.json")) {
      folder_ = fs::absolute(arguments_.run_dir);
      const Json state = parse_json(read_file(state_file(), ExitCode::data));
      if (state.at("recipe") != recipe_yaml(recipe_))
        throw UserError("the tuning in this folder is of another recipe; name another --run-dir: " +
                        arguments_.run_dir);
      tuning_ = tuning_from(state);
      say(fmt::format("continuing after {}", counted(std::ssize(tuning_.steps), "trial")));
      return;
    }
    Recipe named = recipe_;
    named.name = "tune-" + recipe_.name;
    named.run_dir = arguments_.run_dir.empty() ? std::nullopt : std::optional(arguments_.run_dir);
    folder_ = fs::absolute(make_run_directory(named));
    keep(tuning_, Json());
  }

  void keep(const Tuning& tuning, const Json& last) const {
    Json state = to_json(tuning);
    state["recipe"] = recipe_yaml(recipe_);
    write_file(state_file(), json_text(state, 2) + "\n");
    write_file(folder_ / "result.json", json_text(result_of(tuning, last), 2) + "\n");
  }

  static std::string line_of(const TuningStep& step, size_t number) {
    const std::string numbers = measured(step.trial);
    return fmt::format("{:>3}  {}: {}\n     estimated {}{}; {}{}", number, step.candidate.what,
                       text_of(step.candidate.change), gain(step.candidate.estimate),
                       numbers.empty() ? "" : ", measured " + numbers,
                       step.kept ? "kept" : "not kept: ", step.kept ? "" : step.reason);
  }

  static Json json_of(const CommandBench::Final& last) {
    const Trial& trial = last.trial;
    return {{"ratio", trial.ratio ? Json(*trial.ratio) : Json()},
            {"interval", trial.interval ? Json{trial.interval->low, trial.interval->high} : Json()},
            {"pairs", last.pairs},
            {"failure", trial.failure.empty() ? Json() : Json(trial.failure)}};
  }

  static Json result_of(const Tuning& tuning, const Json& last) {
    const auto of_last = [&](const char* key) { return last.is_object() ? last.at(key) : Json(); };
    Json result = {{"schema_version", 1},
                   {"ratio", tuning.change().empty() ? Json(1.0) : of_last("ratio")},
                   {"interval", of_last("interval")},
                   {"pairs", of_last("pairs")},
                   {"failure", of_last("failure")},
                   {"change", tuning.change()}};
    result.update(to_json(tuning));
    return result;
  }
  Json result(const Json& last) const { return result_of(tuning_, last); }

  void write_tuned() const {
    const auto tuned = with_words(recipe_, tuning_.change(), arguments_.ranks);
    TRAINOPT_CHECK(tuned.has_value());
    std::map<std::string, std::string> comments;
    for (const TuningStep& step : tuning_.steps)
      if (step.kept)
        for (const std::string& word : step.candidate.change)
          comments[word.substr(0, word.find('='))] = fmt::format("{}: {}", step.candidate.what, measured(step.trial));
    write_file(folder_ / "tuned.yaml", annotated(recipe_yaml(*tuned), comments));
  }

  void print(const Json& last) const {
    for (const Candidate& each : tuning_.not_allowed)
      say(fmt::format("not tried without --allow new_math, because it trains something else: {} ({})",
                      text_of(each.change), each.what));
    const Words change = tuning_.change();
    std::string text = change.empty() ? "nothing that was tried pays" : "kept: " + text_of(change);
    if (last.is_object() && last.at("ratio").is_number()) {
      text += fmt::format("\nagainst the original: {}", gain(last.at("ratio").get<double>()));
      if (const Json& ends = last.at("interval"); !ends.is_null())
        text += fmt::format(", 95 % interval {} to {}", gain(ends.at(0)), gain(ends.at(1)));
      text += fmt::format(", {} of fresh processes", counted(last.at("pairs").get<int64_t>(), "pair"));
    } else if (last.is_object() && last.at("failure").is_string()) {
      text += "\nthe final comparison " + last.at("failure").get<std::string>();
    }
    std::printf("\n%s\n%s; %s has tuned.yaml and result.json\n", text.c_str(), tuning_.ended.c_str(), folder_.c_str());
  }

  const TuneArguments& arguments_;
  const Recipe& recipe_;
  const CommandContext& context_;
  const double budget_s_;
  const TuningOptions options_;
  fs::path folder_;
  Tuning tuning_;
};

}  // namespace

Command add_tune(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "tune", "Find what limits a recipe, try the changes that should help, and keep those that are measured to pay");
  const auto arguments = std::make_shared<TuneArguments>();
  command->add_option("--budget", arguments->budget, "Time for everything, such as 15m")->capture_default_str();
  command->add_option("--allow", arguments->allow, "new_math: also try changes that train something else")
      ->type_name("new_math")
      ->allow_extra_args(false);
  command->add_option("--ranks", arguments->ranks, "Tune the job of so many ranks on this machine")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--run-dir", arguments->run_dir,
                      "Write to this folder, new or empty; or continue the tuning that it has");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  arguments->recipe.add_to(*command);
  return [=](const CommandContext& context) {
    if (read_launch(context.environment).position.ranks > 1)
      throw UserError("start tune once, without a launcher, and name the ranks: trainopt tune RECIPE --ranks N");
    handle_signals();
    const LoadedRecipe loaded = arguments->recipe.load(*command, arguments->ranks);
    return TuneSession(*arguments, loaded.recipe, context).run();
  };
}

}  // namespace trainopt
