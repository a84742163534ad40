#include "app/compare_output.h"

#include "app/arguments.h"
#include "base/error.h"
#include "base/log.h"
#include "base/print.h"
#include "base/status_line.h"
#include "compare/bundle.h"
#include "compare/each_values.h"
#include "compare/output/comparison_json.h"
#include "compare/output/comparison_text.h"
#include "compare/output/table.h"
#include "compare/session.h"
#include "run/directory.h"
#include "run/report_page.h"
#include "run/run_plan.h"
#include "run/signals.h"
#include "run/version.h"

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <map>

namespace trainopt {

TextStyle text_style(const OutputOptions& console) {
  const bool terminal = !console.launched && ::isatty(STDOUT_FILENO) == 1;
  return {colored_output(console), terminal ? terminal_columns(STDOUT_FILENO) : TextStyle::kAnyWidth};
}

Observer observer_of(Status& status, Explain explain) {
  return {.report = [&status](const std::string& line) { status.line(line); },
          .now = [&status](const std::string& what) { status.now(what); },
          .stop = &stop_signal(),
          .explain = std::move(explain)};
}

int end_comparison(const std::filesystem::path& folder, const CompareOutput& output, const OutputOptions& console,
                   const std::string& failure, ExitCode failure_code, int code) {
  if (!output.json && !output.markdown)
    print_out("\nresults are in {}; trainopt compare --show reads them on any machine\n", folder.string());
  std::fflush(stdout);  // a launcher may end this process soon after another rank has failed
  write_own_report(folder);
  say_again(console);
  if (!failure.empty()) throw UserError(failure, failure_code);
  return stop_signal() != 0 ? 128 + stop_signal() : code;
}

int print_comparison(const Comparison& comparison, const CompareOutput& output, const TextStyle& style) {
  const GateResult gate = output.gate.judge([&](const GateRule& rule) { return decide(rule, comparison); });
  return gate.print(to_json(comparison, false), comparison_markdown(comparison), comparison_text(comparison, style),
                    output.form(), style.color);
}

namespace {

/// What `measure` returns, without the tensors of first steps in the folder, even if it throws.
template <class Measure>
auto measured_in(const std::filesystem::path& folder, const Measure& measure) {
  try {
    auto result = measure();
    remove_first_steps(folder);
    return result;
  } catch (...) {
    remove_first_steps(folder);
    throw;
  }
}

/// After a signal. Returns the exit code.
int end_without_result(const char* before_what, const OutputOptions& console) {
  log_warning("stopped before {}", before_what);
  say_again(console);
  return 128 + stop_signal();
}

}  // namespace

int compare_and_print(ArmsToCompare arms, Recipe named, const CompareOptions& options, Clock::time_point until,
                      const CompareOutput& output, ArmFactory& factory, const Explain& explain,
                      const OutputOptions& console) {
  std::optional<Status> status(std::in_place, console, output.budget_s);
  std::vector<Plan> plans;
  for (const ArmSpec& spec : arms.specs) plans.push_back(factory.plan(spec));  // throws before anything is created
  if (arms.host == ArmHost::this_process) arms.host = host_of(plans);
  arms.command = this_command(console, {"--budget", "--repeats", "--run-dir"});
  named.name = "compare-" + named.name;
  named.run_dir = output.run_dir.empty() ? std::nullopt : std::optional(output.run_dir);
  // An absolute path, because an arm's recipe must not look like key=value.
  const std::filesystem::path folder = std::filesystem::absolute(make_run_directory(named));
  for (size_t i = 0; i < arms.specs.size(); ++i)
    arms.specs[i].folder = folder / (arms.key.empty() ? std::string(i == 0 ? "a" : "b") : fmt::format("arm-{}", i + 1));
  const std::function write = [&](const Comparison& c) { write_bundle(folder, c, {kBuild.version, kBuild.commit}); };
  const auto result = measured_in(folder, [&] {
    Observer observer = observer_of(*status, explain);
    observer.keep = keep_with(write);
    return compare_arms(arms, options, until, factory, observer);
  });
  status.reset();
  if (!result) {
    return end_without_result(arms.key.empty() ? "A and B were compared" : "the arms were compared", console);
  }
  const int code = print_comparison(*result, output, text_style(console));  // first, because the disk may be full
  write(*result);
  return end_comparison(folder, output, console, result->sampling.failure, result->sampling.failure_code, code);
}

namespace fs = std::filesystem;
namespace {

/// One recipe for each value. Throws UserError if two of them are the same.
std::vector<Recipe> recipes_of(const EachArguments& arguments, const EachValues& each, int64_t ranks) {
  std::vector<Recipe> recipes;
  std::map<std::string, std::string> value_of;  // by the resolved recipe
  for (const std::string& value : each.values) {
    Sources sources = arguments.sources;
    sources.overrides.push_back(fmt::format("{}={}", each.key, value));
    recipes.push_back(load_recipe(sources, ranks).recipe);
    const auto [same, is_new] = value_of.emplace(recipe_yaml(recipes.back()), value);
    if (!is_new)
      throw UserError(
          fmt::format("two values of {} give the same recipe; name one: {} and {}", each.key, same->second, value));
  }
  refuse_profiler_alone(recipes);
  return recipes;
}

/// No pair of arms may need more confidence than the verdict of two arms can give (MeasureOptions::options).
void require_possible_level(double level, size_t arms) {
  constexpr double kLeastError = 1e-4;
  const auto pairs = static_cast<double>(pairs_of(arms).size());
  if (1 - pair_level(level, arms) < kLeastError * (1 - 1e-9))
    throw UserError(fmt::format("--level is too high for {} arms; the highest possible is {:.2f}%: {:g}%", arms,
                                std::floor(1e4 * (1 - pairs * kLeastError)) / 100, 100 * level));
}

std::string job_of(const Sources& sources) {
  std::vector<std::string> words{sources.files.front().string()};
  words.insert(words.end(), sources.overrides.begin(), sources.overrides.end());
  return fmt::format("{}", fmt::join(words, " "));
}

/// The arms without their folders.
ArmsToCompare arms_of_each(const EachArguments& arguments, const EachValues& each, const std::vector<Recipe>& recipes) {
  ArmsToCompare arms{.job = job_of(arguments.sources),
                     .key = each.key,
                     .names = each.values,
                     .specs = {},
                     .host = arguments.own_processes ? ArmHost::own_process : ArmHost::this_process,
                     .with_numbers = arguments.with_numbers};
  for (const Recipe& recipe : recipes)
    arms.specs.push_back({.recipe = recipe, .folder = {}, .without = {}, .batch_seed = {}});
  arms.specs.back().faults = arguments.faults;
  return arms;
}

}  // namespace

int compare_each(const EachArguments& arguments, const MeasureOptions& measure, const CompareOutput& output,
                 const Environment& environment, const OutputOptions& console) {
  const EachValues each = each_values(arguments.each);
  CompareOptions options = measure.options();
  options.warmup_steps = 0;
  if (!arguments.with_noise_floor) options.noise_blocks = 0;
  if (const auto rule = output.gate.rule()) options.boundary = rule->boundary();
  require_possible_level(options.level, each.values.size());
  const Launch launch = read_launch(environment);
  const std::vector<Recipe> recipes = recipes_of(arguments, each, launch.position.ranks);
  const MeasureJob job = measure_job(recipes);
  for (const Recipe& recipe : recipes) options.warmup_steps = std::max(options.warmup_steps, recipe.bench.warmup_steps);
  return run_measurement(launch, job, environment, [&](ArmFactory& factory, const Explain& explain) {
    const auto until = measure.end();
    warn_of_unused_profiler(recipes);
    warn_of_unused_gpu(recipes.front(), this_machine(environment));
    return compare_and_print(arms_of_each(arguments, each, recipes), recipes.front(), options, until, output, factory,
                             explain, console);
  });
}

namespace {

int print_against(const Against& result, const CompareOutput& output, const TextStyle& style) {
  const GateResult gate =
      output.gate.judge([&](const GateRule& rule) { return decide(rule, evidence_of(result, rule)); });
  return gate.print(to_json(result, false), against_markdown(result), against_text(result, style), output.form(),
                    style.color);
}

void refuse_numbers(const Gate& gate) {
  if (const auto rule = gate.rule(); rule && rule->numbers)
    throw UserError("--against compares speed alone: remove numbers from --fail-on");
}

/// Rank 0 alone runs this.
int measure_and_print(const AgainstArguments& arguments, const CompareOptions& options, Clock::time_point until,
                      const CompareOutput& output, ArmFactory& factory, const Explain& explain,
                      const OutputOptions& console) {
  std::optional<Status> status(std::in_place, console, output.budget_s);
  const ProgramVersion version{kBuild.version, kBuild.commit};
  StoredArm stored = read_stored_arm(arguments.stored, recipe_json(arguments.recipe));
  ArmSpec spec{.recipe = arguments.recipe, .folder = {}, .without = {}, .batch_seed = {}};
  require_same_ranks(stored, factory.plan(spec).position.ranks);  // throws before anything is created
  Recipe named = arguments.recipe;
  named.name = "against-" + named.name;
  named.run_dir = output.run_dir.empty() ? std::nullopt : std::optional(output.run_dir);
  const fs::path folder = fs::absolute(make_run_directory(named));
  spec.folder = folder / "b";
  const std::optional<Against> result = measured_in(folder, [&] {
    return measure_against(std::move(stored), arguments.name, spec, measured_environment(version), options, until,
                           factory, observer_of(*status, explain));
  });
  status.reset();
  if (!result) return end_without_result("the recipe was measured", console);
  const int code = print_against(*result, output, text_style(console));  // first, because the disk may be full
  write_bundle(folder, *result, version);
  return end_comparison(folder, output, console, result->sampling.failure, result->sampling.failure_code, code);
}

}  // namespace

int compare_against(const AgainstArguments& arguments, const MeasureOptions& measure, const CompareOutput& output,
                    const Environment& environment, const OutputOptions& console) {
  refuse_numbers(output.gate);
  CompareOptions options = measure.options();
  options.warmup_steps = arguments.recipe.bench.warmup_steps;
  const MeasureJob job = measure_job(std::array{arguments.recipe});
  return run_measurement(read_launch(environment), job, environment, [&](ArmFactory& factory, const Explain& explain) {
    const auto until = measure.end();
    warn_of_unused_profiler(std::array{arguments.recipe});
    warn_of_unused_gpu(arguments.recipe, this_machine(environment));
    return measure_and_print(arguments, options, until, output, factory, explain, console);
  });
}

int show_against(const fs::path& folder, const CompareOutput& output, const TextStyle& style) {
  refuse_numbers(output.gate);
  return print_against(read_against(folder), output, style);
}

int GateResult::print(Json json, const std::string& markdown, const std::string& text, ResultForm form,
                      bool color) const {
  const bool failed = decision_ && decision_->failed;
  const std::string line = decision_ ? gate_text(*decision_) : "";
  if (form == ResultForm::json) {
    if (decision_) json["gate"] = to_json(rule_, *decision_);
    print_json(json);
  } else {
    print_colored(form == ResultForm::markdown ? markdown : text);
    if (decision_ && form == ResultForm::markdown) print_colored(fmt::format("\n**{}**\n", line));
    if (decision_ && form == ResultForm::text)
      print_colored(fmt::format("{}\n", (color ? colored(line, failed ? kRed : kGreen) : line)));
  }
  return static_cast<int>(failed ? ExitCode::gate : ExitCode::done);
}

void Gate::add_to(CLI::App& command) {
  command
      .add_option("--fail-on", list,
                  "End with exit code 10 if B costs; costs:3%: if the cost shown, the end of the interval nearer to 1, "
                  "is 3% or more (and measure until that is decided); inconclusive: if that is open; numbers: if the "
                  "numbers disagree. Several are separated by commas")
      ->type_name("LIST")
      ->each([](const std::string& word) {
        if (word.empty()) parse_gate(word);
      });
}

std::optional<GateRule> Gate::rule() const { return list.empty() ? std::nullopt : std::optional(parse_gate(list)); }

GateResult Gate::judge(const std::function<GateDecision(const GateRule&)>& decision) const {
  const auto asked = rule();
  return asked ? GateResult(*asked, decision(*asked)) : GateResult();
}

void Gate::refuse(const std::string& why) const {
  if (!list.empty()) throw UserError(fmt::format("--fail-on has no verdict to judge: {}", why));
}

}  // namespace trainopt
