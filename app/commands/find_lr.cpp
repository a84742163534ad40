// trainopt find lr: a learning rate from a range test, in a process of its own.
#include "app/commands.h"
#include "app/status.h"
#include "base/bar_plot.h"
#include "base/files/files.h"
#include "base/print.h"
#include "base/run_command.h"
#include "base/units.h"
#include "checkpoint/store.h"
#include "compare/bundle.h"
#include "recipe/make_plan.h"
#include "recipe/recipe_io.h"
#include "run/directory.h"
#include "run/report_page.h"
#include "run/signals.h"
#include "run/version.h"
#include "statistics/rate_range.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <sstream>

namespace trainopt {
namespace fs = std::filesystem;
namespace {

constexpr size_t kPlotColumns = 66;
constexpr int64_t kPlotRows = 10;

struct FindLrArguments {
  RecipeArguments recipe;
  double lowest = 1e-7, highest = 10;
  int64_t steps = 100;
  std::string run_dir, apply;
  bool json = false;

  void check() const {
    if (!(lowest > 0) || !(highest > lowest) || !std::isfinite(highest))
      throw UserError(fmt::format("--lowest must be above 0 and --highest above it: {}, {}", lowest, highest));
    if (steps < 20 || steps > 100'000) throw UserError(fmt::format("--steps must be 20 to 100000: {}", steps));
    std::error_code ignored;
    if (!apply.empty() && fs::exists(apply, ignored))
      throw UserError("--apply writes a new recipe, and this file exists already: " + apply, ExitCode::storage);
  }
  double rate(int64_t step) const {
    return lowest * std::pow(highest / lowest, static_cast<double>(step) / static_cast<double>(steps - 1));
  }
};

/// optimizer.lr, and the rates of single parameters and of the schedule in proportion to it. The schedule's max_lr is
/// dropped: it would replace optimizer.lr.
void set_rate(Recipe& recipe, double rate) {
  const double factor = rate / base_learning_rate(recipe.optimizer);
  std::visit(
      [&](auto& optimizer) {
        optimizer.lr = rate;
        for (ParameterGroup& group : optimizer.common.groups)
          if (group.lr) *group.lr *= factor;
        if constexpr (requires { optimizer.adamw_lr; })
          if (optimizer.adamw_lr) *optimizer.adamw_lr *= factor;
      },
      recipe.optimizer);
  std::visit(
      [&](auto& schedule) {
        if constexpr (requires { schedule.max_lr; }) schedule.max_lr.reset();
        if constexpr (requires { schedule.base_lr; })
          if (schedule.base_lr) *schedule.base_lr *= factor;
        if constexpr (requires { schedule.eta_min; }) schedule.eta_min *= factor;
      },
      recipe.scheduler.schedule);
}

UpdateLength update_length(const OptimizerConfig& optimizer) {
  if (std::holds_alternative<SgdConfig>(optimizer)) return UpdateLength::gradient;
  const bool of_weights =
      std::holds_alternative<LarsConfig>(optimizer) || std::holds_alternative<LambConfig>(optimizer);
  return of_weights ? UpdateLength::weights : UpdateLength::fixed;
}

/// The recipe's steps with a rate that grows, and without anything that does not train. `done`: steps of the checkpoint
/// that it resumes, or 0.
Recipe range_test(Recipe recipe, const FindLrArguments& arguments, int64_t done) {
  set_rate(recipe, arguments.lowest);
  recipe.scheduler = {};
  recipe.scheduler.schedule = ExponentialSchedule{.gamma = arguments.rate(1) / arguments.lowest};
  recipe.scheduler.warmup_steps = done;  // the schedule begins after them
  recipe.train.epochs.reset();
  recipe.train.max_time.reset();
  recipe.train.target = {};
  recipe.train.max_steps = done + arguments.steps;
  recipe.train.on_nonfinite = OnNonfinite::abort;
  recipe.train.max_skipped_steps = TrainConfig().max_skipped_steps;
  recipe.run_dir.reset();
  if (done == 0) recipe.average = {};  // a checkpoint has the state of it
  recipe.evaluation.every_n_steps.reset();
  recipe.evaluation.at_end = false;
  recipe.checkpoint.every_n_steps.reset();
  recipe.checkpoint.at_end = false;
  recipe.logging = {};
  recipe.logging.sinks = {SinkKind::jsonl};
  recipe.logging.report = false;
  recipe.profiler = {};
  recipe.debug = {};
  return recipe;
}

std::vector<RatePoint> read_points(const fs::path& metrics) {
  std::vector<RatePoint> points;
  std::istringstream lines(read_file(metrics, ExitCode::storage));
  for (std::string line; std::getline(lines, line);) {
    const Json record = parse_json(line);
    const Json& loss = record.at("loss");
    points.push_back({record.at("learning_rate").get<double>(),
                      loss.is_number() ? loss.get<double>() : std::numeric_limits<double>::quiet_NaN()});
  }
  return points;
}

/// Throws UserError unless it ran to its end, or until the loss was no longer finite.
std::vector<RatePoint> run_test(const Recipe& recipe, const fs::path& folder, const FindLrArguments& arguments) {
  write_file(folder / "test.yaml", recipe_yaml(recipe));
  const CommandEnd end =
      run_self({"run", (folder / "test.yaml").string(), "--run-dir", (folder / "test").string(), "--quiet"}, folder, 1,
               {.stop = &stop_signal(), .seconds = {}});
  const bool diverged = end.code == static_cast<int>(ExitCode::diverged);
  if (stop_signal() != 0) return {};
  if (end.code != 0 && !diverged) throw UserError("the test " + failure_of(end), exit_code_of(end));
  std::error_code ignored;  // they are large, and nothing reads them
  fs::remove(folder / "test/weights.safetensors", ignored);
  std::vector<RatePoint> points = read_points(folder / "test/metrics.jsonl");
  if (diverged)  // the step that failed has no record
    points.push_back({arguments.rate(std::ssize(points)), std::numeric_limits<double>::quiet_NaN()});
  while (points.size() < kFewestPoints) points.push_back(points.back());
  return points;
}

Json result_json(const std::vector<RatePoint>& points, const RateRange& range, const std::string& name) {
  Json json = {{"schema_version", 1},
               {"name", name},
               {"suggestion", range.suggestion ? Json(*range.suggestion) : Json()},
               {"reason", range.reason},
               {"lowest_loss_at", range.smoothed.empty() ? Json() : Json(points[range.lowest].rate)},
               {"failed_at", range.failed ? Json(points[*range.failed].rate) : Json()},
               {"rates", Json::array()},
               {"losses", Json::array()},
               {"smoothed", Json::array()}};
  for (size_t i = 0; i < range.smoothed.size(); ++i) {
    json["rates"].push_back(points[i].rate);
    json["losses"].push_back(points[i].loss);
    json["smoothed"].push_back(range.smoothed[i]);
  }
  return json;
}

void print_curve(const std::vector<RatePoint>& points, const RateRange& range) {
  std::vector<double> columns;
  const size_t shown = range.smoothed.size(), width = std::min(kPlotColumns, shown);
  for (size_t column = 0; column < width; ++column) columns.push_back(range.smoothed[column * shown / width]);
  const double lowest = *std::min_element(columns.begin(), columns.end()),
               highest = *std::max_element(columns.begin(), columns.end());
  print_out("smoothed loss\n{}", bar_plot(columns, std::max(0.0, lowest - (highest - lowest) / 4), kPlotRows));
  const std::string first = fmt::format("lr {:.3g}", points.front().rate),
                    last = fmt::format("{:.3g}", points[shown - 1].rate);
  print_out("            {}{:>{}}\n", first, last, width - std::min(width, first.size()));
}

void print(const std::vector<RatePoint>& points, const RateRange& range) {
  if (!range.smoothed.empty()) print_curve(points, range);
  print_out("suggestion  {}\n", range.suggestion ? fmt::format("optimizer.lr={:.3g}", *range.suggestion) : "none");
  print_out("why         {}\n", range.reason);
}

/// Steps of the checkpoint from which the recipe resumes; 0: it starts from its initial weights. Makes the path
/// absolute.
int64_t steps_of_checkpoint(Recipe& recipe) {
  std::string& from = recipe.checkpoint.resume;
  if (from == "none") return 0;
  if (from == "auto") throw UserError("find lr needs the path of a checkpoint: checkpoint.resume=auto");
  from = fs::absolute(from).string();
  return open_checkpoint(from).step;
}

/// Two digits are as many as a range test can tell.
double rounded(double rate) { return std::stod(fmt::format("{:.2g}", rate)); }

int find_lr(const FindLrArguments& arguments, Recipe recipe, const CommandContext& context) {
  if (base_learning_rate(recipe.optimizer) == 0)
    throw UserError("optimizer.lr must be above 0, because the rates of single parameters change in proportion to it");
  const Recipe test = range_test(recipe, arguments, steps_of_checkpoint(recipe));
  const Machine machine = this_machine(context.environment);
  make_plan(test, machine);  // reports what is wrong before anything is created
  Recipe named = recipe;
  named.name = "find-lr-" + recipe.name;
  named.run_dir = arguments.run_dir.empty() ? std::nullopt : std::optional(arguments.run_dir);
  const fs::path folder = fs::absolute(make_run_directory(named));
  create_folders(folder);
  const std::vector<RatePoint> points = [&] {
    Status status(context.output);
    status.line(fmt::format("training {} with growing rates", counted(arguments.steps, "step")));
    return run_test(test, folder, arguments);
  }();
  say_again(context.output);
  if (stop_signal() != 0) return 128 + stop_signal();
  RateRange range = read_rate_range(points, update_length(recipe.optimizer));
  if (range.suggestion) range.suggestion = rounded(*range.suggestion);
  const Json json = result_json(points, range, recipe.name);
  write_file(folder / "result.json", json_text(json, 2) + "\n");
  write_file(folder / "environment.json", json_text(measured_environment({kBuild.version, kBuild.commit}), 2) + "\n");
  if (recipe.logging.report) write_own_report(folder);
  if (arguments.json)
    print_json(json);
  else
    print(points, range);
  if (arguments.apply.empty()) return 0;
  if (!range.suggestion) throw UserError("--apply has nothing to write, because " + range.reason);
  Recipe applied = recipe;
  set_rate(applied, *range.suggestion);
  write_file(arguments.apply, recipe_yaml(applied));
  if (!arguments.json) print_out("written     {}\n", arguments.apply);
  return 0;
}

}  // namespace

Command add_find_lr(CLI::App& find) {
  CLI::App* command = find.add_subcommand(
      "lr", "Suggest a learning rate from a short training in which it grows from very low to too high");
  const auto arguments = std::make_shared<FindLrArguments>();
  command->add_option("--lowest", arguments->lowest, "The first rate")->capture_default_str();
  command->add_option("--highest", arguments->highest, "The last rate, unless training fails before")
      ->capture_default_str();
  command->add_option("--steps", arguments->steps, "Steps of the test, 20 to 100000")->capture_default_str();
  command->add_option("--apply", arguments->apply, "Write the recipe with the suggested rate to this new file");
  command->add_option("--run-dir", arguments->run_dir, "Write to this folder, new or empty");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  arguments->recipe.add_to(*command);
  return [=](const CommandContext& context) {
    refuse_several_ranks(context.environment, "trainopt find lr");
    handle_signals();
    arguments->check();
    return find_lr(*arguments, arguments->recipe.load(*command).recipe, context);
  };
}

}  // namespace trainopt
