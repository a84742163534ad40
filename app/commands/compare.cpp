// trainopt compare A B: measures which of two recipes is faster, with a confidence interval.
#include "app/commands.h"
#include "app/compare_output.h"
#include "app/shared_options.h"
#include "app/until.h"
#include "base/files/files.h"
#include "base/log.h"
#include "base/print.h"
#include "compare/bundle.h"
#include "compare/finished_runs.h"
#include "compare/measure.h"
#include "compare/output/comparison_json.h"
#include "compare/output/comparison_text.h"
#include "compare/session.h"
#include "debugging/inject.h"
#include "recipe/make_plan.h"
#include "run/directory.h"
#include "run/run_plan.h"
#include "run/signals.h"
#include "run/version.h"

#include <CLI/CLI.hpp>

#include <cstdio>

namespace trainopt {
namespace fs = std::filesystem;
namespace {

struct CompareArguments {
  RecipeArguments recipes;
  MeasureOptions measure;
  std::vector<std::string> with, without, each, faults;
  std::string show, run_dir, against;
  UntilOptions until;
  Gate gate;
  bool json = false, markdown = false, own_processes = false, no_numbers = false, whole = false, no_noise_floor = false;

  CompareOutput output() const {
    return {.json = json, .markdown = markdown, .run_dir = run_dir, .gate = gate, .budget_s = measure.limit_s()};
  }
};

NamedRecipe load_named(const CLI::App& command, std::vector<std::string> words, int64_t ranks) {
  return {fmt::format("{}", fmt::join(words, " ")), RecipeArguments{std::move(words)}.load(command, ranks).recipe};
}

/// Two recipes; or one recipe without (A) and with (B) the switches that --without names; or one recipe as given (A)
/// and with the overrides of --with (B).
std::pair<NamedRecipe, NamedRecipe> arms_of(const CLI::App& command, const CompareArguments& arguments,
                                            const std::vector<fs::path>& files,
                                            const std::vector<std::string>& overrides, int64_t ranks) {
  const auto with = [&](const fs::path& file, const std::vector<std::string>& more) {
    std::vector<std::string> words{file.string()};
    words.insert(words.end(), overrides.begin(), overrides.end());
    words.insert(words.end(), more.begin(), more.end());
    return load_named(command, words, ranks);
  };
  if (files.size() == 2 && arguments.with.empty() && arguments.without.empty())
    return {with(files[0], {}), with(files[1], {})};
  if (files.size() != 1 || (arguments.with.empty() && arguments.without.empty()))
    throw UserError("name two recipes, or one and --without SWITCH or --with key=value: trainopt compare A B");
  for (const std::string& change : arguments.with)
    if (change.find('=') == std::string::npos)
      throw UserError("--with needs KEY=VALUE, such as num_threads=4: " + change);
  std::vector<std::string> off;
  for (const auto& name : arguments.without) off.push_back(switched_off(name));
  std::pair<NamedRecipe, NamedRecipe> arms{with(files[0], off), with(files[0], arguments.with)};
  if (recipe_yaml(arms.first.recipe) == recipe_yaml(arms.second.recipe))
    throw UserError(arguments.with.empty()
                        ? fmt::format("--without changes nothing: {} has the default of {} already", files[0].string(),
                                      fmt::join(arguments.without, " and "))
                        : fmt::format("A and B are the same: {} has these values already", files[0].string()));
  return arms;
}

bool is_run(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

/// Prints the result of a comparison, or the stored report of an ablation. Returns the exit code.
int show(const fs::path& folder, const CompareArguments& arguments, const TextStyle& style) {
  if (is_against(folder)) return show_against(folder, arguments.output(), style);
  if (is_until(folder)) return show_until(folder, arguments.output());
  if (!is_ablation(folder)) return print_comparison(read_bundle(folder), arguments.output(), style);
  arguments.gate.refuse("an ablation has many; name a folder of trainopt compare");
  const fs::path file = folder / (arguments.json ? "result.json" : "report.md");
  print_text(read_file(file, ExitCode::data));
  return 0;
}

/// Throws UserError if anything is given, beside two run directories, that would change nothing.
int compare_finished(const CLI::App& command, const std::vector<fs::path>& files, bool overridden,
                     const CompareArguments& arguments) {
  const std::string alone =
      "to compare finished runs, name two run directories and nothing else: trainopt compare RUN_DIR RUN_DIR";
  if (files.size() != 2 || !is_run(files[0]) || !is_run(files[1]) || overridden) throw UserError(alone);
  arguments.gate.refuse("finished runs did not take turns; compare their recipes");
  for (const CLI::Option* option : command.get_options())
    if (const std::string name = option->get_name();
        option->count() > 0 && option->nonpositional() && name != "--level" && name != "--json")
      throw UserError(fmt::format("{}; remove {}", alone, name));
  const auto options = arguments.measure.options();
  const auto result = compare_runs(read_finished_run(files[0]), read_finished_run(files[1]), options.level);
  if (arguments.json)
    print_json(to_json(result));
  else
    print_text(runs_text(result));
  return 0;
}

/// Rank 0 alone runs this.
int compare_recipes(const NamedRecipe& a, const NamedRecipe& b, const CompareArguments& arguments,
                    const CommandContext& context, ArmFactory& factory, const Explain& explain) {
  CompareOptions options = arguments.measure.options();
  options.warmup_steps = std::max(a.recipe.bench.warmup_steps, b.recipe.bench.warmup_steps);
  if (arguments.no_noise_floor) options.noise_blocks = 0;
  if (const auto rule = arguments.gate.rule()) options.boundary = rule->boundary();
  const auto until = arguments.measure.end();
  warn_of_unused_profiler(std::array{a.recipe, b.recipe});
  warn_of_unused_gpu(b.recipe, this_machine(context.environment));
  ArmsToCompare arms{.names = {a.name, b.name},
                     .specs = {},
                     .host = arguments.own_processes ? ArmHost::own_process : ArmHost::this_process,
                     .with_numbers = !arguments.no_numbers};
  for (const NamedRecipe* each : {&a, &b})
    arms.specs.push_back(
        {.recipe = each->recipe, .folder = {}, .without = {}, .batch_seed = {}, .whole = arguments.whole});
  arms.specs.back().faults = arguments.faults;
  return compare_and_print(std::move(arms), b.recipe, options, until, arguments.output(), factory, explain,
                           context.output);
}

/// Whether --each is given. Throws UserError if it cannot be combined with the other arguments.
bool wants_each(const CompareArguments& arguments, const std::vector<fs::path>& files) {
  if (arguments.each.empty()) return false;
  if (arguments.each.size() > 1) throw UserError("--each can be given once: all arms differ in one key");
  if (!arguments.with.empty() || !arguments.without.empty())
    throw UserError("--each names all arms itself; remove --with and --without");
  if (files.size() != 1 || is_run(files.front()))
    throw UserError("--each takes one recipe: trainopt compare RECIPE --each KEY=a,b,c");
  return true;
}

/// Measures one recipe alone, against a stored result.
int hold_against(const CLI::App& command, const CompareArguments& arguments, const std::vector<fs::path>& files,
                 const std::vector<std::string>& overrides, const CommandContext& context) {
  if (files.size() != 1 || is_run(files[0]) || !arguments.with.empty() || !arguments.without.empty() ||
      !arguments.each.empty() || !arguments.faults.empty())
    throw UserError("--against measures one recipe: trainopt compare RECIPE [key=value ...] --against FILE");
  handle_signals();
  std::vector<std::string> words{files[0].string()};
  words.insert(words.end(), overrides.begin(), overrides.end());
  const int64_t ranks = read_launch(context.environment).position.ranks;
  NamedRecipe named = load_named(command, std::move(words), ranks);
  return compare_against(
      {.stored = arguments.against, .name = std::move(named.name), .recipe = std::move(named.recipe)},
      arguments.measure, arguments.output(), context.environment, context.output);
}

/// Compares how soon two recipes reach their target, in runs of their own.
int compare_to_target(const NamedRecipe& a, const NamedRecipe& b, const CompareArguments& arguments,
                      const CommandContext& context) {
  refuse_several_ranks(context.environment, "trainopt compare --until");
  arguments.gate.refuse(kOwnVerdict);
  const auto options = arguments.measure.options();
  return compare_until(
      {.a = a, .b = b, .seeds = arguments.until.seeds, .level = options.level, .min_effect = options.min_effect},
      arguments.output(), context.output);
}

int run_compare(const CLI::App& command, const CompareArguments& arguments, const CommandContext& context) {
  if (const auto rule = arguments.gate.rule(); rule && rule->numbers && arguments.no_numbers)
    throw UserError("--fail-on numbers needs the numbers: remove --no-numbers");
  if (!arguments.show.empty()) {
    if (!arguments.recipes.words.empty() || !arguments.with.empty() || !arguments.without.empty() ||
        !arguments.each.empty() || !arguments.run_dir.empty() || !arguments.against.empty())
      throw UserError("--show reads a finished comparison; remove the other arguments");
    refuse_several_ranks(context.environment, "trainopt compare --show");
    return show(arguments.show, arguments, text_style(context.output));
  }
  if (arguments.whole && (!arguments.each.empty() || !arguments.against.empty()))
    throw UserError("--whole compares two recipes; remove --each or --against");
  const Sources sources = arguments.recipes.split(command);
  const auto& [files, overrides, home] = sources;
  if (!arguments.against.empty()) return hold_against(command, arguments, files, overrides, context);
  if (wants_each(arguments, files)) {
    handle_signals();
    for (const auto& fault : arguments.faults) parse_injection(fault);  // reports mistakes before anything starts
    return compare_each({.sources = sources,
                         .each = arguments.each.front(),
                         .faults = arguments.faults,
                         .own_processes = arguments.own_processes,
                         .with_numbers = !arguments.no_numbers,
                         .with_noise_floor = !arguments.no_noise_floor},
                        arguments.measure, arguments.output(), context.environment, context.output);
  }
  if (std::any_of(files.begin(), files.end(), is_run)) {
    refuse_several_ranks(context.environment, "a comparison of finished runs");
    return compare_finished(command, files, !overrides.empty(), arguments);
  }
  const Launch launch = read_launch(context.environment);
  handle_signals();
  for (const auto& fault : arguments.faults) parse_injection(fault);  // reports mistakes before anything starts
  const auto [a, b] = arms_of(command, arguments, files, overrides, launch.position.ranks);
  if (arguments.until) return compare_to_target(a, b, arguments, context);
  refuse_profiler_alone(std::array{a.recipe, b.recipe});
  const MeasureJob job = measure_job(std::array{a.recipe, b.recipe});
  return run_measurement(launch, job, context.environment, [&](ArmFactory& factory, const Explain& explain) {
    return compare_recipes(a, b, arguments, context, factory, explain);
  });
}

}  // namespace

Command add_compare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("compare", "Measure which of two recipes is faster: they take turns on the same batches");
  const auto arguments = std::make_shared<CompareArguments>();
  arguments->recipes.add_to(*command, "A B [key=value ...]");
  command->add_option("--without", arguments->without, "Compare one recipe without this switch (A) and as given (B)")
      ->type_name("SWITCH")
      ->allow_extra_args(false);
  command->add_option("--with", arguments->with, "Compare one recipe as given (A) and with this override (B)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--each", arguments->each,
                   "Compare one recipe with each of these values of a key, all in one comparison")
      ->type_name("KEY=A,B,C")
      ->allow_extra_args(false);
  std::vector<CLI::Option*> measuring = arguments->measure.add_to(*command, "5m");
  measuring.push_back(command->add_flag(
      "--own-processes", arguments->own_processes,
      "Run each arm in its own process, as when process settings differ; also reports memory per arm"));
  measuring.push_back(command->add_flag("--no-numbers", arguments->no_numbers,
                                        "Do not run a second copy of A: no noise floor and no numerical comparison"));
  measuring.push_back(command->add_flag("--no-noise-floor", arguments->no_noise_floor,
                                        "Use the second copy of A for the numerical comparison only"));
  measuring.push_back(command->add_option("--inject", arguments->faults, "Inject a fault into B, as trainopt run does")
                          ->type_name("FAULT@STEP[+][:RANK]")
                          ->allow_extra_args(false)
                          ->take_all());
  measuring.push_back(command->add_flag(
      "--whole", arguments->whole,
      "Keep evaluations, checkpoints and records in the turns, over whole periods of each, so that their cost counts"));
  command->add_option("--run-dir", arguments->run_dir, "Write the result to this folder, new or empty");
  CLI::Option* show = command
                          ->add_option("--show", arguments->show,
                                       "Show the result in this folder, recomputed from its turns at its own level")
                          ->type_name("DIR");
  for (CLI::Option* option : measuring) show->excludes(option);
  CLI::Option* against = command
                             ->add_option("--against", arguments->against,
                                          "Measure one recipe alone, in several processes, and hold it against this "
                                          "stored result; shows less than a comparison, which takes turns")
                             ->type_name("FILE");
  for (const char* paired :
       {"--own-processes", "--no-numbers", "--no-noise-floor", "--precision", "--coins", "--inject"})
    against->excludes(command->get_option(paired));
  arguments->gate.add_to(*command);
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->add_flag("--markdown", arguments->markdown, "Print Markdown");
  arguments->until.add_to(*command,
                          "Compare how soon both reach train.target, in whole runs with the same several seeds");
  return [=](const CommandContext& context) { return run_compare(*command, *arguments, of_rank(context)); };
}

}  // namespace trainopt
