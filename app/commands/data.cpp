// trainopt data bench | export: measures or exports what the loader delivers, without training.
#include "app/commands.h"
#include "base/log.h"
#include "base/print.h"
#include "base/units.h"
#include "data/loader_bench.h"
#include "device/process.h"
#include "recipe/make_plan.h"

#include <CLI/CLI.hpp>

#include <cmath>
#include <filesystem>

namespace trainopt {
namespace {

/// Uses the recipe's own plan although the loader runs on the host: without the GPU switches its buffers would differ.
Plan loader_plan(const LoadedRecipe& loaded, const Environment& environment) {
  Plan plan = make_plan(loaded.recipe, this_machine(environment));
  if (!plan.data.dataset) throw UserError("data.dataset: synthetic has no loader to measure; choose another data set");
  require_no_contradiction(plan.process, environment);
  apply(plan.process);
  for (const auto& note : loaded.notes) log_info("{}", note);
  return plan;
}

/// CLI11's own check prints both limits of a double in its message.
std::string above_zero(const std::string& text) {
  double number = 0;
  return CLI::detail::lexical_cast(text, number) && number > 0 && std::isfinite(number)
             ? ""
             : "must be a number above 0: " + text;
}

Json bench_json(const LoaderBenchResult& r) {
  Json json = {{"schema_version", 1},  {"samples_per_s", r.samples_per_s},
               {"batches", r.batches}, {"samples", r.samples},
               {"seconds", r.seconds}, {"wait_pct", r.wait_pct}};
  if (r.tokens > 0) json["tokens_per_s"] = r.tokens_per_s, json["tokens"] = r.tokens;
  const Json shares = to_json(r.shares.value_or(LoaderShares()));
  for (const auto& [name, share] : shares.items()) json[name] = r.shares ? share : Json();
  json["ready_batches"] = r.ready_batches;
  json["buffers"] = r.slots;
  json["buffer_bytes"] = r.slot_bytes;
  json["verdict"] = r.verdict;
  return json;
}

std::string shares_text(const LoaderShares& s) {
  return fmt::format("{:.1f} us per sample: {:.0f} % reading, {:.0f} % decoding, {:.0f} % transforming, {:.0f} % other",
                     s.sample_us, s.read_pct, s.decode_pct, s.transform_pct, s.other_pct);
}

}  // namespace

Command add_data_bench(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "bench", "Measure the loader alone: samples per second, and whether it or its consumer waits");
  const auto recipes = std::make_shared<RecipeArguments>();
  const auto json = std::make_shared<bool>(false);
  const auto options = std::make_shared<LoaderBenchOptions>();
  command->add_flag("--json", *json, "Print one JSON object");
  command->add_option("--batches", options->batches, "Number of batches to measure")
      ->check(above_zero)
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "Seconds to measure; the first limit reached ends it")
      ->check(above_zero)
      ->capture_default_str();
  recipes->add_to(*command);
  return [=](const CommandContext& context) {
    const Plan plan = loader_plan(recipes->load(*command), context.environment);
    const auto result =
        plan.data.device_dataset
            ? run_resident_bench(*plan.open_batches(plan.data), plan.device, *options)
            : run_loader_bench(*make_loader(plan.data, plan.loader, {.format = plan.tensor_format}), *options);
    if (*json) {
      print_json(bench_json(result));
    } else {
      const std::string tokens = result.tokens > 0 ? fmt::format(", {:.0f} tokens/s", result.tokens_per_s) : "";
      print_out("{:.0f} samples/s{} over {:.1f} s ({})\n", result.samples_per_s, tokens, result.seconds,
                counted(result.batches, "batch", "es"));
      if (result.shares)
        print_out("{}; {} buffers of {}\n", shares_text(*result.shares), result.slots,
                  human_bytes(static_cast<double>(result.slot_bytes)));
      print_out("{}\n", result.verdict);
    }
    return 0;
  };
}

Command add_data_export(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "export",
      "Write the tensors, labels and sample ids of the first steps: data export RECIPE --steps N OUT.safetensors");
  const auto recipes = std::make_shared<RecipeArguments>();
  const auto steps = std::make_shared<int64_t>(0);
  command->add_option("--steps", *steps, "Number of steps")->required()->check(above_zero);
  recipes->add_to(*command);
  return [=](const CommandContext& context) {
    if (recipes->words.size() < 2)
      throw UserError(
          "name a recipe and a file to write: trainopt data export RECIPE [key=value ...] --steps N OUT.safetensors");
    auto with_output = *recipes;
    const std::filesystem::path output = with_output.words.back();
    with_output.words.pop_back();
    // Do not overwrite a recipe that was given in its place.
    if (output.extension() != ".safetensors")
      throw UserError(
          fmt::format("the last argument must be the file to write, ending in .safetensors: {}", output.string()));
    Plan plan = make_plan(with_output.load(*command).recipe, this_machine(context.environment));
    plan.tensor_format.compute_type = at::kFloat;  // the file holds float32, even if autocast would round it
    require_no_contradiction(plan.process, context.environment);
    apply(plan.process);
    const auto batches = plan.open_batches(plan.data, {.end = *steps});
    export_steps(*batches, *steps, output);
    return 0;
  };
}

}  // namespace trainopt
