#include "app/compare_against.h"

#include "app/run_directory.h"
#include "app/run_plan.h"
#include "app/signals.h"
#include "app/version.h"
#include "compare/against.h"
#include "compare/bundle.h"

#include <spdlog/spdlog.h>

#include <cstdio>

namespace trainopt {
namespace fs = std::filesystem;
namespace {

int print_against(const Against& result, bool json, bool markdown, const Gate& gate, bool color) {
  const GateResult judged = gate.judge([&](const GateRule& rule) { return evidence_of(result, rule); });
  if (json)
    print_json(judged.in(to_json(result, false)));
  else
    std::fputs(
        (markdown ? against_markdown(result) + judged.markdown() : against_text(result, color) + judged.text(color))
            .c_str(),
        stdout);
  return judged.exit_code();
}

void refuse_numbers(const Gate& gate) {
  if (const auto rule = gate.rule(); rule && rule->numbers)
    throw UserError("--against compares speed alone: remove numbers from --fail-on");
}

}  // namespace

int compare_against(const AgainstArguments& arguments, const MeasureOptions& measure, const Gate& gate,
                    const CommandContext& context) {
  refuse_numbers(gate);
  CompareOptions options = measure.options();
  options.warmup_steps = arguments.recipe.bench.warmup_steps;
  const auto until = measure.end();
  StoredArm stored = read_stored_arm(arguments.stored, recipe_json(arguments.recipe));
  const Machine machine = detect_machine(visible_devices(context.environment));
  warn_of_unused_gpu(arguments.recipe, machine);
  LocalArms factory(machine);
  Recipe named = arguments.recipe;
  named.name = "against-" + arguments.recipe.name;
  named.run_dir = arguments.run_dir.empty() ? std::nullopt : std::optional(arguments.run_dir);
  ArmSpec spec{.recipe = arguments.recipe, .folder = {}, .without = {}, .batch_seed = {}};
  require_same_ranks(stored, factory.plan(spec));  // throws for an invalid recipe before anything is created
  const fs::path folder = fs::absolute(make_run_directory(named));
  spec.folder = folder / "b";
  const Observer observer{.report =
                              [&](const std::string& line) {
                                if (!context.output.quiet) spdlog::info("{}", line);
                              },
                          .stop = &stop_signal()};
  const Json environment = measured_environment({kBuild.version, kBuild.commit});
  const Against result =
      measure_against(std::move(stored), arguments.name, spec, environment, options, until, factory, observer);
  remove_first_steps(folder);
  const int code = print_against(result, arguments.json, arguments.markdown, gate, colored_output(context.output));
  write_against(folder, result, environment);
  if (!arguments.json && !arguments.markdown)
    std::printf("\nresults are in %s; a later --against can name it in turn\n", folder.c_str());
  if (!result.now.failure.empty()) throw UserError(result.now.failure, result.now.failure_code);
  return stop_signal() != 0 ? 128 + stop_signal() : code;
}

bool is_against_folder(const fs::path& folder) { return is_against(read_result(folder / "result.json")); }

int show_against(const fs::path& folder, bool json, bool markdown, const Gate& gate, bool color) {
  refuse_numbers(gate);
  Against result;
  try {
    result = against_from(read_result(folder / "result.json"));
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", folder.string(), error.what()), ExitCode::data);
  }
  return print_against(result, json, markdown, gate, color);
}

}  // namespace trainopt
