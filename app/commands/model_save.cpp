// trainopt model save: the trained weights of a run, back in the program that it trained.
#include "app/commands.h"
#include "base/print.h"
#include "base/units.h"
#include "model/imported/save.h"
#include "recipe/recipe_io.h"

#include <CLI/CLI.hpp>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

/// The recipe of a run of an imported program. Throws UserError.
Recipe recipe_of(const fs::path& run) {
  const fs::path file = run / "recipe.yaml";
  std::error_code error;
  if (!fs::exists(file, error))
    throw UserError(fmt::format("{} is no run directory: it has no recipe.yaml", run.string()));
  Recipe recipe = load_recipe({.files = {file}, .overrides = {}}, std::nullopt).recipe;
  if (!traits_of(recipe.model.name).from_file)
    throw UserError(
        fmt::format("{} trained the built-in {}, which is no program of torch.export; its weights are in {}",
                    run.string(), word_of(recipe.model.name), (run / "weights.safetensors").string()));
  return recipe;
}

NamedTensors weights_of(const fs::path& run, bool average) {
  const fs::path file = run / (average ? "weights-average.safetensors" : "weights.safetensors");
  std::error_code error;
  if (!fs::exists(file, error))
    throw UserError(fmt::format("{} does not exist: {}", file.string(),
                                average ? "the run's recipe has no average, or the run has not ended"
                                        : "the run has not ended; trainopt run with checkpoint.resume: auto goes on"),
                    ExitCode::checkpoint);
  return load_tensors(file);
}

}  // namespace

Command add_model_save(CLI::App& model) {
  CLI::App* command =
      model.add_subcommand("save", "Write the trained weights of a run back into the program that it trained");
  struct Options {
    fs::path run, out, program;
    bool average = false;
  };
  const auto options = std::make_shared<Options>();
  command->add_option("RUN", options->run, "The run directory")->required();
  command->add_option("OUT", options->out, "The .pt2 file to write, which torch.export.load reads")->required();
  command->add_option("--program", options->program,
                      "The .pt2 file that the run trained; default: model.path of its recipe, from the current folder");
  command->add_flag("--average", options->average, "The averaged weights of a run with the section average");
  return [options](const CommandContext&) {
    Recipe recipe = recipe_of(options->run);
    if (!options->program.empty()) recipe.model.path = options->program.string();
    save_program(recipe.model, weights_of(options->run, options->average), options->out);
    print_out("{}: {} with the {} of {}; read it with torch.export.load\n", options->out.string(),
              recipe.model.path.value_or(""), options->average ? "averaged weights" : "weights", options->run.string());
    return static_cast<int>(ExitCode::done);
  };
}

}  // namespace trainopt
