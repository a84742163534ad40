// trainopt model show: what an imported program contains.
#include "app/commands.h"
#include "base/print.h"
#include "base/units.h"
#include "model/imported/imported.h"
#include "model/model.h"
#include "recipe/plan_text.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

namespace trainopt {
namespace {

constexpr size_t kMostShown = 3;

Json describe_program(const ModelConfig& config) {
  const ProgramFacts facts = program_facts(config);
  const ProgramNotes notes = program_notes(config);
  const Model model = make_model(config, facts.input, at::kMeta, /*seed=*/0);
  Json json = {{"path", config.path.value_or("")},
               {"torch_version", facts.torch_version},
               {"input", facts.input.is_text() ? Json{{"tokens", facts.input.tokens}}
                                               : Json{{"channels", facts.input.channels},
                                                      {"height", facts.input.height},
                                                      {"width", facts.input.width}}},
               {"task", word_of(facts.task)},
               {"outputs", facts.classes},
               {"operations", facts.operations},
               {"parameters", model.parameter_count()},
               {"flops_per_sample", model.flops_per_sample()},
               {"not_counted", notes.uncounted},
               {"draws", notes.draws},
               {"layers", model.layer_counts().found},
               {"no_evaluation", why_not_evaluated(config)},
               {"units", Json::array()}};
  for (size_t unit = 0; unit < model.units().size(); ++unit) {
    int64_t parameters = 0;
    for (const auto& [name, tensor] : model.unit_state(unit))
      if (tensor.requires_grad()) parameters += tensor.numel();
    const std::string name = model.units()[unit]->name();
    const auto uncut = notes.uncut.find(name);
    json["units"].push_back({{"name", name},
                             {"not_cut", uncut == notes.uncut.end() ? Json::array() : Json(uncut->second)},
                             {"parameters", parameters},
                             {"flops_per_sample", model.unit_flops()[unit]},
                             {"output", model.shapes()[unit + 1]}});
  }
  return json;
}

/// "torch.ops.aten.dropout.default in layer1, … and 3 more".
std::string list_text(const Json& list) {
  std::vector<std::string> shown;
  for (const Json& each : list)
    if (shown.size() < kMostShown) shown.push_back(each.get<std::string>());
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (list.size() > shown.size()) text += fmt::format(" and {} more", list.size() - shown.size());
  return text;
}

/// Which units are larger than model.units wants, and why.
std::string uncut_text(const Json& units) {
  std::string text;
  for (const Json& unit : units)
    if (const Json& places = unit["not_cut"]; !places.empty()) {
      text += fmt::format("  {:<36} {}", unit["name"].get<std::string>(), places[0].get<std::string>());
      if (places.size() > 1)
        text += fmt::format(", and {} more", counted(static_cast<int64_t>(places.size()) - 1, "place"));
      text += "\n";
    }
  return text.empty() ? text : "\n  not cut\n" + text;
}

std::string returns_text(const Json& json) {
  const auto count = json["outputs"].get<int64_t>();
  if (json["task"] != word_of(ModelTask::loss))
    return with_commas(count) + (json["input"].contains("tokens") ? " logits for each token" : " logits");
  return count > 0 ? fmt::format("its own loss, and {} logits", with_commas(count)) : "its own loss";
}

std::string program_text(const Json& json) {
  std::string text =
      fmt::format("{}, saved by torch {}\n", json["path"].get<std::string>(), json["torch_version"].get<std::string>());
  const auto line = [&](const std::string& name, const std::string& value) {
    text += fmt::format("  {:<12} {}\n", name, value);
  };
  const Json& input = json["input"];
  const std::string taken = input.contains("tokens")
                                ? counted(input["tokens"].get<int64_t>(), "token")
                                : fmt::format("images of {}×{}×{}", input["channels"].get<int64_t>(),
                                              input["height"].get<int64_t>(), input["width"].get<int64_t>());
  line("takes", json["task"] == word_of(ModelTask::loss) ? taken + ", and the target" : taken);
  line("returns", returns_text(json));
  line("parameters", with_commas(json["parameters"].get<int64_t>()));
  line("operations", with_commas(json["operations"].get<int64_t>()));
  line("forward", human_flops(json["flops_per_sample"].get<double>()) + " a sample");
  if (!json["layers"].get<std::string>().empty()) line("layers", json["layers"].get<std::string>());
  if (!json["not_counted"].empty()) line("not counted", list_text(json["not_counted"]));
  if (!json["draws"].empty()) line("draws", list_text(json["draws"]));
  const auto& problem = json["no_evaluation"].get_ref<const std::string&>();
  line("evaluation",
       problem.empty() ? "the training graph, with dropout and the like turned off" : "not possible: " + problem);
  text += fmt::format("\n  {:<36} {:>12} {:>13}  output\n", counted(static_cast<int64_t>(json["units"].size()), "unit"),
                      "parameters", "forward");
  for (const Json& unit : json["units"])
    text +=
        fmt::format("  {:<36} {:>12} {:>13}  {}\n", unit["name"].get<std::string>(),
                    with_commas(unit["parameters"].get<int64_t>()), human_flops(unit["flops_per_sample"].get<double>()),
                    fmt::join(unit["output"].get<std::vector<int64_t>>(), "×"));
  text += uncut_text(json["units"]);
  return text;
}

}  // namespace

Command add_model_show(CLI::App& model) {
  CLI::App* command = model.add_subcommand("show", "What a program that torch.export saved contains, and its units");
  struct Options {
    std::string path, program, units = "blocks";
    std::optional<int64_t> context;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  command->add_option("file", options->path, "The .pt2 file")->required()->type_name("FILE");
  command->add_option("--program", options->program, "Which program of the file, if it has several");
  command->add_option("--units", options->units, "As model.units: blocks, layers, or a pattern of modules");
  command
      ->add_option("--context", options->context,
                   "As model.context: tokens of a sample, if the program leaves them free; otherwise 1024, or as "
                   "close to it as the program allows")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->add_flag("--json", options->json, "Print one JSON object");
  return [options](const CommandContext&) {
    ModelConfig config;
    config.name = ModelKind::exported;
    config.path = options->path;
    if (!options->program.empty()) config.program = options->program;
    config.units = options->units;
    config.context = options->context.value_or(nearest_context(config));
    if (options->context && !program_facts(config).free_tokens)
      throw UserError(fmt::format("--context: the number of tokens is not free in {}; remove it", options->path));
    const Json json = describe_program(config);
    if (options->json)
      print_json(json);
    else
      print_text(program_text(json));
    return static_cast<int>(ExitCode::done);
  };
}

}  // namespace trainopt
