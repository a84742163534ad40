#include "recipe/recipe_io.h"

#include "config/edit.h"
#include "config/leads.h"
#include "config/load.h"
#include "config/suggest.h"
#include "data/dataset.h"
#include "data/formats/text/token_file.h"
#include "data/transform_config.h"
#include "model/trained_weights.h"
#include "recipe/make_plan.h"
#include "recipe/validate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

namespace trainopt {

LoadedRecipe load_recipe(const Sources& sources, std::optional<int64_t> ranks) {
  auto loaded = load<Recipe>(sources, [ranks](const Recipe& recipe, const Origins& origins) {
    std::vector<Problem> problems;
    for (const auto& [key, message] : validate(recipe, ranks)) problems.push_back(problem_at(origins, key, message));
    return problems;
  });
  return {std::move(loaded.config), std::move(loaded.notes), std::move(loaded.origins)};
}

void require_model_files(const Recipe& recipe) {
  const ModelConfig& model = recipe.model;
  if (model.weights) weight_files(*model.weights);
  for (const auto& [key, path] : {std::pair{"path", &model.path}, {"evaluation_path", &model.evaluation_path}})
    if (*path && !std::filesystem::is_regular_file(**path))
      throw UserError(fmt::format("model.{}: there is no such file: {}", key, **path), ExitCode::checkpoint);
}

void require_data_files(const Recipe& recipe) {
  const DataFormat& format = format_of(recipe.data.dataset);
  const auto look = [&](const char* key, const std::optional<DataPaths>& paths) {
    if (!paths || !format.files) return;
    const auto files = local_data_files();
    try {
      DataPaths local;
      for (const std::string& path : paths->all)
        is_remote(path) ? require_remote_path(path) : local.all.push_back(path);
      if (local.all.empty()) return;
      if (format.remote) {
        find_files(*files, local,
                   format.text ? std::span<const std::string_view>(kTokenEndings)
                               : std::span<const std::string_view>(&format.ending, 1));
      } else {
        require_path(paths->only(format.word));
      }
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}: {}", key, error.what()), error.code());
    }
  };
  look("data.path", recipe.data.path);
  look("evaluation.path", recipe.evaluation.path);
}

std::string recipe_yaml(const Recipe& recipe) { return to_yaml(recipe); }
Json recipe_json(const Recipe& recipe) { return to_json(recipe); }
std::string documented_recipe() { return documented_yaml<Recipe>(); }
Json recipe_schema() { return schema_of<Recipe>(); }

std::string key_of_switch(const std::string& name) {
  const auto options = options_of<Recipe>();
  for (const char* section : {"optimizations.", "data.", ""})
    for (const auto& option : options)
      if (option.path == section + name || option.path.starts_with(section + name + ".")) return section + name;
  std::vector<std::string_view> names;
  for (const auto& option : options)
    if (option.path.starts_with("optimizations.") || option.path.starts_with("data."))
      names.push_back(std::string_view(option.path).substr(option.path.find('.') + 1));
  const std::string nearest = closest_match(name, names);
  throw UserError(fmt::format("there is no such switch{}; trainopt plan lists the switches of a recipe: {}",
                              nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest), name));
}

KeyMeant key_meant(const std::string& word) {
  Recipe recipe;
  const Outline outline = outline_of(recipe);
  KeyMeant meant;
  if (option_at(outline, word) != nullptr) {
    meant.path = word;
  } else {
    std::vector<const Option*> top;
    for (const Option& option : outline) top.push_back(&option);
    const Suggestion found = suggestion(word, "", top, outline);
    if (found.paths.empty()) return {.path = "", .note = "", .text = found.text};
    meant.path = found.paths.front();
    if (const Lead* lead = lead_of_key("", word)) meant.note = lead->note;
  }
  const Option* option = option_at(outline, meant.path);
  if (option == nullptr) return meant;  // it has a value of its own
  if (option->kind == Option::Kind::section) {
    for (const Option& own : option->options)  // --optimizer adamw is optimizer.name=adamw
      if (own.kind == Option::Kind::variant || own.name == "name") {
        meant.path += "." + own.name;
        return meant;
      }
    return {.path = "", .note = "", .text = fmt::format(" (did you mean the section '{}'?)", meant.path)};
  }
  meant.is_list = option->type.starts_with("list of");
  meant.is_switch = option->kind == Option::Kind::toggle || option->type == "true | false";
  return meant;
}

std::string help_text(const std::vector<OptionHelp>& options) {
  constexpr size_t kNamesElsewhere = 8;
  size_t path_width = 0;
  for (const auto& option : options) path_width = std::max(path_width, option.path.size());
  std::string text;
  for (const auto& option : options) {
    text += fmt::format("{:<{}}  {} = {}", option.path, path_width, option.type, option.default_text);
    if (!option.bounds.empty()) text += fmt::format("  [{}]", option.bounds);
    text += fmt::format("\n{:<{}}  {}\n", "", path_width, option.help);
    if (!option.only_for.empty()) text += fmt::format("{:<{}}  only for {}\n", "", path_width, option.only_for);
    if (!option.aliases.empty())
      text += fmt::format("{:<{}}  also: {}\n", "", path_width, fmt::join(option.aliases, ", "));
    const size_t shown = std::min(option.elsewhere.size(), kNamesElsewhere), more = option.elsewhere.size() - shown;
    if (shown > 0)
      text += fmt::format(
          "{:<{}}  in other tools: {}{}\n", "", path_width,
          fmt::join(option.elsewhere.begin(), option.elsewhere.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
          more > 0 ? fmt::format(" and {} more", more) : "");
  }
  return text;
}

std::vector<OptionHelp> recipe_options() { return options_of<Recipe>(); }

std::optional<std::string> edited_recipe(const std::string& text, const Words& changes,
                                         const std::map<std::string, std::string>& comments) {
  Recipe recipe;
  return edited(text, changes, comments, outline_of(recipe));
}

std::string text_of(const Words& words) { return fmt::format("{}", fmt::join(words, " ")); }

std::optional<Recipe> with_words(const Recipe& recipe, const Words& words, int64_t ranks) {
  Recipe changed = recipe;
  const LoadedInto into = load_into(outline_of(changed), {.files = {}, .overrides = words});
  if (!into.problems.empty() || !validate(changed, ranks).empty()) return std::nullopt;
  return changed;
}

std::optional<Plan> plan_with(const Recipe& recipe, const Words& words, const Machine& machine,
                              const RankPosition& position) {
  const auto changed = with_words(recipe, words, position.ranks);
  if (!changed) return std::nullopt;
  try {
    return make_plan(*changed, machine, position);
  } catch (const UserError&) {  // named recovery: a change that this machine refuses is none
    return std::nullopt;
  }
}

}  // namespace trainopt
