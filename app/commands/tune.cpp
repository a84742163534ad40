// trainopt tune RECIPE: diagnose, change, measure, keep what pays.
#include "app/commands.h"
#include "app/status.h"
#include "base/files/files.h"
#include "base/log.h"
#include "base/print.h"
#include "base/shell_command.h"
#include "base/units.h"
#include "comm/launch/launch_environment.h"
#include "device/process.h"
#include "run/directory.h"
#include "run/signals.h"
#include "tune/tuner.h"
#include "tune/tuning_bench.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>

namespace trainopt {
namespace fs = std::filesystem;
namespace {

struct TuneArguments {
  RecipeArguments recipe;
  Sources sources;       ///< the recipe's, once they are known
  std::string own_text;  ///< the only recipe as it was when the tuning began; empty: there are several
  std::string run_dir, budget = "15m";
  std::vector<std::string> allow;
  std::optional<int64_t> ranks;
  std::string goal = "speed";
  bool json = false;
};

/// Share of the time for the end, in which the original and the result are measured afresh.
constexpr double kShareOfFinal = 0.3;
constexpr double kLeastFinalS = 5;  // with less, they are not measured

/// The job's ranks, and whether this process tunes it.
struct Place {
  int64_t ranks = 1;
  bool conducts = true;
};

/// Under a launcher its first rank tunes: it starts the ranks of every run itself, as `trainopt launch` does. The
/// others have nothing to do.
Place place_of(const TuneArguments& arguments, const Launch& launch) {
  const RankPosition& position = launch.position;
  if (position.ranks == 1) return {.ranks = arguments.ranks.value_or(1)};
  if (!position.one_machine())
    throw UserError(
        fmt::format("tune measures the ranks of one machine, and {} started {} on several; tune on one of "
                    "them: trainopt tune RECIPE --ranks {}",
                    launch.launcher, counted(position.ranks, "rank"), position.local_ranks));
  if (arguments.ranks && *arguments.ranks != position.ranks)
    throw UserError(fmt::format("--ranks contradicts {}, which started {}; leave it out: {}", launch.launcher,
                                counted(position.ranks, "rank"), *arguments.ranks));
  return {.ranks = position.ranks, .conducts = position.is_first()};
}

/// Keeps the commands that a tuning starts from being taken for the launcher's ranks.
void leave_launcher(const Environment& environment) {
  for (const std::string& name : launcher_variables(environment)) ::unsetenv(name.c_str());
  allow_all_cpus();
}

TuningGoal goal_of(const std::string& word) {
  for (const auto& choice : Choices<TuningGoal>::all)
    if (choice.word == word) return choice.value;
  throw UserError("--goal must be speed, memory or price: " + word);
}

class TuneSession {
 public:
  TuneSession(const TuneArguments& arguments, const Recipe& recipe, int64_t ranks, const CommandContext& context)
      : arguments_(arguments),
        recipe_(recipe),
        ranks_(ranks),
        context_(context),
        budget_s_(budget()),
        goal_(goal_of(arguments.goal)),
        options_{.allow_new_math = allows_new_math()} {
    if (goal_ == TuningGoal::price && !recipe_.bench.price_per_hour)
      throw UserError("--goal price needs bench.price_per_hour: what an hour of all machines of this job costs");
  }

  int run() {
    const auto last = measure();
    const Json shown_last = last ? to_json(*last) : Json();
    keep(tuning_, shown_last);
    if (arguments_.json)
      print_json(result_of(tuning_, shown_last));
    else
      print(last);
    if (stop_signal() != 0 && !context_.output.quiet)
      log_info("to continue: {}", this_command(context_.output, {"--run-dir"}, {"--run-dir", folder_.string()}));
    return stop_signal() != 0 ? 128 + stop_signal() : 0;
  }

 private:
  /// Tunes, and measures the result against the original if there is one.
  std::optional<CommandBench::Final> measure() {
    const auto began = Clock::now();
    open_folder();
    Status status(context_.output, budget_s_);
    status.line(fmt::format(
        "tuning {} for {}: a diagnosis, a trial of each change that should help, then the result afresh; at most {}",
        recipe_.name, word_of(goal_), to_text(Duration{budget_s_})));
    CommandBench bench(bench_options(status));
    if (goal_ != TuningGoal::memory) bench.measure_peaks();
    size_t shown = tuning_.steps.size(), limits = tuning_.limits.size();
    tuning_ = tune(bench, options_, std::move(tuning_), [&](const Tuning& so_far) {
      for (; shown < so_far.steps.size(); ++shown) say(text_.line_of(so_far.steps[shown], shown + 1));
      // What limits the recipe with a step is known after the step.
      for (; limits < so_far.limits.size(); ++limits)
        say(fmt::format("{} {}", goal_ == TuningGoal::memory ? "memory:" : "limited by",
                        so_far.limits[limits].empty() ? "nothing known" : so_far.limits[limits]));
      keep(so_far, Json());
    });
    const Words change = tuning_.change();
    if (change.empty() || stop_signal() != 0) return std::nullopt;
    const double left = budget_s_ - seconds_since(began);
    if (left < kLeastFinalS) {
      say("no time is left to measure the result against the original; raise --budget");
      return std::nullopt;
    }
    say("measuring the result against the original, in fresh processes");
    return bench.confirm(change, options_.level, left);
  }

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

  CommandBenchOptions bench_options(Status& status) const {
    return {.folder = folder_,
            .recipe = recipe_,
            .machine = this_machine(context_.environment),
            .goal = goal_,
            .ranks = ranks_,
            .diagnosis_s = std::min(12.0, budget_s_ / 10),
            .least_trial_s = std::min(25.0, budget_s_ / 5),  // a ResNet takes ten of them to start
            .most_trial_s = std::max(60.0, budget_s_ / 8),
            .most_peaks_s = budget_s_ / 4,
            .trials_until = after((1 - kShareOfFinal) * budget_s_),
            .stop = &stop_signal(),
            .say = [this](const std::string& what) { say(what); },
            .now = [&status](const std::string& what) { status.now(what); }};
  }

  void say(const std::string& what) const {
    if (context_.output.quiet || arguments_.json) return;
    print_out("{}\n", what);
    std::fflush(stdout);
  }

  fs::path state_file() const { return folder_ / "tuning.json"; }

  /// The tuning that was begun in this folder. Throws UserError.
  Tuning begun() const try {
    const Json state = parse_json(read_file(state_file(), ExitCode::data));
    if (state.at("recipe") != recipe_yaml(recipe_) || state.at("goal") != word_of(goal_))
      throw UserError("the tuning in this folder is of another recipe or goal; name another --run-dir: " +
                      arguments_.run_dir);
    const int64_t ranks = state.value("ranks", ranks_);  // earlier versions did not write it: the user knows
    if (ranks != ranks_)
      throw UserError(fmt::format("the tuning in this folder is of {}, this one of {}; name another --run-dir: {}",
                                  counted(ranks, "rank"), ranks_, arguments_.run_dir));
    return tuning_from(state);
  } catch (const Json::exception& error) {
    throw UserError(
        fmt::format("{} is damaged; name another --run-dir: {}", state_file().string(), json_problem(error)),
        ExitCode::data);
  }

  /// A new folder, or that of the same tuning, which then continues.
  void open_folder() {
    if (!arguments_.run_dir.empty() && fs::exists(fs::path(arguments_.run_dir) / "tuning.json")) {
      folder_ = fs::absolute(arguments_.run_dir);
      tuning_ = begun();
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
    state["goal"] = word_of(goal_);
    state["ranks"] = ranks_;
    write_file(state_file(), json_text(state, 2) + "\n");
    write_file(folder_ / "result.json", json_text(result_of(tuning, last), 2) + "\n");
    write_file(folder_ / "steps.md", text_.table_of(tuning));
    const auto tuned = with_words(recipe_, tuning.change(), ranks_);
    TRAINOPT_CHECK(tuned.has_value());
    write_tuned(*tuned, tuning);
  }

  /// The user's own recipe with what was kept changed in it. Several recipes, or one that cannot be edited so, become
  /// the resolved recipe.
  void write_tuned(const Recipe& tuned, const Tuning& tuning) const {
    const fs::path file = folder_ / "tuned.yaml";
    const auto comments = text_.comments(tuning);
    const Sources& sources = arguments_.sources;
    Words changes = sources.overrides;
    for (const std::string& word : tuning.change()) changes.push_back(word);
    if (!arguments_.own_text.empty()) try {
        if (const auto own = edited_recipe(arguments_.own_text, changes, comments)) {
          write_file(file, *own);
          const Sources written{.files = {file}, .overrides = {}, .home = sources.home};
          if (recipe_json(load_recipe(written, ranks_).recipe) == recipe_json(tuned)) return;
        }
      } catch (const RecipeErrors&) {  // named recovery: the resolved recipe takes its place
      }
    write_file(file, annotated(recipe_yaml(tuned), comments));
  }

  Json result_of(const Tuning& tuning, const Json& last) const {
    const auto of_last = [&](const char* key) { return last.is_object() ? last.at(key) : Json(); };
    Json result = {{"schema_version", 1},
                   {"goal", word_of(goal_)},
                   {"ratio", tuning.change().empty() ? Json(1.0) : of_last("ratio")},
                   {"interval", of_last("interval")},
                   {"pairs", of_last("pairs")},
                   {"speed", of_last("speed")},
                   {"numbers_agree", of_last("numbers_agree")},
                   {"before", of_last("before")},
                   {"after", of_last("after")},
                   {"failure", of_last("failure")},
                   {"change", tuning.change()}};
    result.update(to_json(tuning));
    return result;
  }

  std::string outcome() const {
    if (const Words change = tuning_.change(); !change.empty()) return "kept: " + text_of(change);
    if (!tuning_.steps.empty()) return "no change paid";
    if (tuning_.ended == kTuningStopped) return "no trial was completed";
    if (tuning_.ended != kTuningTimeIsUp) return "nothing was tried: no allowed change is expected to help";
    const char* peaks = goal_ == TuningGoal::memory ? "" : "the machine's peaks and ";
    return fmt::format("nothing was tried: the time was spent on {}the diagnosis; raise --budget", peaks);
  }

  void print(const std::optional<CommandBench::Final>& last) const {
    for (const Candidate& each : tuning_.not_allowed)
      say(fmt::format("not tried without --allow new_math, because it changes the training: {} ({})",
                      text_of(each.change), each.what));
    std::string text = outcome();
    if (last) {
      text += "\n" + text_.final_text(*last);
      if (last->trial.failure.empty() && goal_ != TuningGoal::memory && last->trial.verdict != Verdict::pays)
        text += fmt::format(
            ": {}", shell_command({"compare", (last->folder / "a.yaml").string(), (last->folder / "b.yaml").string(),
                                   "--own-processes", "--budget", to_text(Duration{2 * budget_s_})}));
    }
    print_out("\n{}\n{}; {} has tuned.yaml, steps.md and result.json\n", text, tuning_.ended, folder_.string());
  }

  const TuneArguments& arguments_;
  const Recipe& recipe_;
  const int64_t ranks_;
  const CommandContext& context_;
  const double budget_s_;
  const TuningGoal goal_;
  const TuningOptions options_;
  const TuningText text_{goal_};
  fs::path folder_;
  Tuning tuning_;
};

}  // namespace

Command add_tune(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "tune", "Find what limits a recipe, try the changes that should help, and keep those that are measured to pay");
  const auto arguments = std::make_shared<TuneArguments>();
  command->add_option("--budget", arguments->budget, "Time for everything, such as 15m")->capture_default_str();
  command
      ->add_option("--allow", arguments->allow, "new_math: also try what changes the training, such as a larger batch")
      ->type_name("new_math")
      ->allow_extra_args(false);
  command
      ->add_option("--ranks", arguments->ranks,
                   "Tune the job of so many ranks on this machine; under a launcher, its own")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--goal", arguments->goal,
                   "speed; memory: a lower peak, by the forecast and then by measurement; price: speed, in the money "
                   "of bench.price_per_hour")
      ->type_name("speed|memory|price")
      ->capture_default_str();
  command->add_option("--run-dir", arguments->run_dir,
                      "Write to this folder, new or empty; or continue the tuning that it has");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  arguments->recipe.add_to(*command);
  return [=](const CommandContext& context) {
    const Launch launch = read_launch(context.environment);
    const Place place = place_of(*arguments, launch);
    const LoadedRecipe loaded = arguments->recipe.load(*command, place.ranks);
    arguments->sources = arguments->recipe.split(*command);
    if (arguments->sources.files.size() == 1)
      arguments->own_text = read_file(arguments->sources.files.front(), ExitCode::recipe);
    if (!place.conducts) return 0;
    handle_signals();
    const CommandContext mine = of_rank(context);
    if (launch.position.ranks > 1) leave_launcher(context.environment);
    return TuneSession(*arguments, loaded.recipe, place.ranks, mine).run();
  };
}

}  // namespace trainopt
