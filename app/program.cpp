#include "app/program.h"

#include "app/allocator_variables.h"
#include "app/commands.h"
#include "app/stack_limit.h"
#include "app/words/help_text.h"
#include "app/words/other_words.h"
#include "base/log.h"
#include "base/print.h"
#include "comm/launch/launch_claims.h"
#include "comm/launch/launch_environment.h"
#include "device/cuda_library.h"
#include "device/memory.h"
#include "device/process.h"
#include "run/explain.h"
#include "run/signals.h"
#include "run/version.h"

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace trainopt {
namespace {

struct Entry {
  CLI::App* parsed;
  Command command;
};

int fail(const std::string& message, ExitCode code) {
  flush_log();
  print_error(message);
  return static_cast<int>(code);
}

/// One sentence for a usage error. CLI11's own message for a missing command omits the unknown word.
std::string usage_problem(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::RequiredError*>(&error)) {
    const auto chosen = app.get_subcommands();
    const CLI::App& at = chosen.empty() ? app : *chosen.front();
    if (at.get_subcommands().empty() && !at.get_subcommands({}).empty()) {
      std::vector<std::string> names;
      for (const CLI::App* command : at.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
        names.push_back(command->get_name());
      const auto words = extra_arguments(at);
      if (words.empty())
        return fmt::format("name a command; the commands of {} are {}", full_name(at), fmt::join(names, ", "));
      const std::string& word = words.front();
      const bool is_option = word.starts_with('-');
      const std::string lead = is_option ? lead_of_option(at, word, typed_words()) : lead_of_command(at, word);
      return fmt::format(
          "unknown {}: {}{}", is_option ? "option" : "command", word,
          lead.empty() ? fmt::format("; the commands of {} are {}", full_name(at), fmt::join(names, ", ")) : lead);
    }
  }
  // A habit of other programs whose option has another meaning here: run RECIPE --precision bf16.
  const std::string problem = error.what(), option = problem.substr(0, problem.find(' '));
  if (problem.find(" requires ") != std::string::npos)
    if (const std::string lead = lead_of_key_option(option, typed_words()); !lead.empty()) return problem + lead;
  return fmt::format("{}; add --help to see the options", problem);
}

}  // namespace

CommandContext of_rank(const CommandContext& context) {
  CommandContext mine = context;
  const Launch launch = read_launch(context.environment);
  mine.output.launched = !launch.launcher.empty();
  if (launch.launcher == kOwnLauncher) mine.output.own_launcher_ranks = launch.position.ranks;
  return mine;
}

namespace {

std::vector<Entry> add_commands(CLI::App& app) {
  std::vector<Entry> table;
  const auto add = [&](CLI::App& parent, auto make) {
    Command command = make(parent);
    table.push_back({parent.get_subcommands({}).back(), std::move(command)});
  };
  add(app, add_run);
  add(app, add_plan);
  add(app, add_check);
  add(app, add_options);
  CLI::App& data = *app.add_subcommand("data", "Measure or export the loader's batches, pack or show a data set");
  data.require_subcommand(1);
  add(data, add_data_bench);
  add(data, add_data_export);
  add(data, add_data_pack);
  add(data, add_data_show);
  add(app, add_profile);
  add(app, add_roofline);
  add(app, add_compare);
  add(app, add_ablate);
  add(app, add_tune);
  CLI::App& find = *app.add_subcommand("find", "Find a value by measuring");
  find.require_subcommand(1);
  add(find, add_find_batch);
  add(find, add_find_lr);
  CLI::App& checkpoint = *app.add_subcommand("checkpoint", "Verify, show or compare checkpoints");
  checkpoint.require_subcommand(1);
  add(checkpoint, add_checkpoint_verify);
  add(checkpoint, add_checkpoint_show);
  add(checkpoint, add_checkpoint_diff);
  CLI::App& model =
      *app.add_subcommand("model", "Show a program that torch.export saved, or save trained weights in it");
  model.require_subcommand(1);
  add(model, add_model_show);
  add(model, add_model_save);
  add(app, add_launch);
  add(app, add_trace);
  add(app, add_report);
  add(app, add_env);
  add(app, add_completion);
  add(app, add_help);
  add(app, add_arm);
  // run() reports words that no command consumed. This comes last because subcommands inherit the setting when added.
  for (CLI::App* parent : {&app, &data, &find, &checkpoint, &model}) parent->allow_extras();
  return table;
}

int run(int argc, char** argv, const Environment& environment) {
  CLI::App app("Which training optimization pays, on my hardware, for my job?", "trainopt");
  app.set_version_flag("--version", version_text);
  app.require_subcommand(1);
  app.fallthrough();
  OutputOptions output;
  output.words.assign(argv + 1, argv + argc);
  typed_words() = output.words;
  app.add_flag("--quiet", output.quiet, "Print results only: for a run, one line with its folder");
  app.add_flag("--no-color", output.no_color, "No colours and no progress line");
  app.add_option("--log-level", output.log_level, "trace, debug, info, warning, error or off")->capture_default_str();
  const std::vector<Entry> table = add_commands(app);
  shape_help(app);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version end here too, with exit code 0.
    if (error.get_exit_code() == 0) return app.exit(error);
    return fail(usage_problem(app, error), ExitCode::recipe);
  }
  const auto terminal = environment.find("TERM");
  const bool dumb = terminal != environment.end() && terminal->second == "dumb";  // it obeys no escape sequences
  const auto no_color = environment.find("NO_COLOR");                             // no-color.org: present and not empty
  if ((no_color != environment.end() && !no_color->second.empty()) || dumb) output.no_color = true;
  start_logging(output.log_level, !output.no_color);
  if (output.log_level != "debug" && output.log_level != "trace") silence_library_warnings();
  require_stack();
  keep_freed_heap(environment);
  require_x86_64_v3();
  require_libtorch(libtorch_version());
  const auto chosen =
      std::find_if(table.begin(), table.end(), [](const Entry& entry) { return entry.parsed->parsed(); });
  TRAINOPT_CHECK(chosen != table.end());
  if (const auto words = extra_arguments(*chosen->parsed); !words.empty() && !chosen->parsed->get_allow_extras())
    refuse_argument(*chosen->parsed, words.front());
  const int code = chosen->command({environment, output});
  // A run writes its results to files and survives the loss of its console; for other commands standard output is the
  // result.
  if (chosen->parsed->get_name() != "run" && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0))
    throw UserError("cannot write to standard output", ExitCode::storage);
  return code;
}

int guarded(int argc, char** argv, const Environment& environment) {
  try {
    return run(argc, argv, environment);
  } catch (const std::exception& error) {
    const auto [message, code] = explain(error);
    return fail(message, code);
  }
}

/// Whether the user loads a library into this process, as profilers do, which may write its results at exit.
bool has_injected_tool(const Environment& environment) {
  return environment.contains("LD_PRELOAD") || environment.contains("CUDA_INJECTION64_PATH") ||
         environment.contains("NVTX_INJECTION64_PATH");
}

}  // namespace

int run_program(int argc, char** argv) {
  reserve_standard_streams();
  explain_allocator_variables(environ);
  open_cuda_library(kBuild.cuda_library);
  check_allocator_variables();
  const Environment environment = read_environment(environ);
  const int code = guarded(argc, argv, environment);
  std::fflush(stdout);
  flush_log();
  if (has_injected_tool(environment)) return code;
  // Without static destructors: libtorch takes half the time of a short command to remove its operators.
  std::_Exit(code);
}

}  // namespace trainopt
