#include "app/compare_against.h"

#include "app/measure_session.h"
#include "app/run_directory.h"
#include "app/run_plan.h"
#include "app/version.h"
#include "compare/bundle.h"

namespace trainopt {
namespace fs = std::filesystem;
namespace {

int print_against(const Against& result, const CompareOutput& output, bool color) {
  const GateResult gate =
      output.gate.judge([&](const GateRule& rule) { return decide(rule, evidence_of(result, rule)); });
  return gate.print(to_json(result, false), against_markdown(result), against_text(result, color), output.form(),
                    color);
}

void refuse_numbers(const Gate& gate) {
  if (const auto rule = gate.rule(); rule && rule->numbers)
    throw UserError("--against compares speed alone: remove numbers from --fail-on");
}

/// On rank 0.
int measure_and_print(const AgainstArguments& arguments, const CompareOptions& options, Clock::time_point until,
                      const CompareOutput& output, ArmFactory& factory, const Observer& observer, bool color) {
  const ProgramVersion version{kBuild.version, kBuild.commit};
  StoredArm stored = read_stored_arm(arguments.stored, recipe_json(arguments.recipe));
  ArmSpec spec{.recipe = arguments.recipe, .folder = {}, .without = {}, .batch_seed = {}};
  require_same_ranks(stored, factory.plan(spec).position.ranks);  // throws before anything is created
  Recipe named = arguments.recipe;
  named.name = "against-" + named.name;
  named.run_dir = output.run_dir.empty() ? std::nullopt : std::optional(output.run_dir);
  const fs::path folder = fs::absolute(make_run_directory(named));
  spec.folder = folder / "b";
  const Against result = measure_against(std::move(stored), arguments.name, spec, measured_environment(version),
                                         options, until, factory, observer);
  remove_first_steps(folder);
  const int code = print_against(result, output, color);  // first, because the disk may be full
  write_bundle(folder, result, version);
  return end_comparison(folder, output, result.sampling.failure, result.sampling.failure_code, code);
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
    return measure_and_print(arguments, options, until, output, factory, observer_of(console, explain),
                             colored_output(console));
  });
}

int show_against(const fs::path& folder, const CompareOutput& output, bool color) {
  refuse_numbers(output.gate);
  return print_against(read_against(folder), output, color);
}

}  // namespace trainopt
