#include "app/words/other_words.h"

#include "app/arguments.h"
#include "config/leads.h"
#include "config/suggest.h"
#include "recipe/recipe_io.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>

namespace trainopt {
namespace {

struct Word {
  std::string_view theirs, instead;
};

/// Commands of Lightning, Ultralytics, MMEngine, torchtune, accelerate and others.
constexpr std::array kCommands = {
    Word{"fit", "did you mean 'run'?"},
    Word{"train", "did you mean 'run'?"},
    Word{"start", "did you mean 'run'?"},
    Word{"finetune", "did you mean 'run'? model.weights names the weights to start from"},
    Word{"pretrain", "did you mean 'run'?"},
    Word{"validate", "a run evaluates at its end; trainopt check validates a recipe"},
    Word{"test", "a run evaluates at its end, on evaluation.path"},
    Word{"eval", "a run evaluates at its end, on evaluation.path"},
    Word{"evaluate", "a run evaluates at its end, on evaluation.path"},
    Word{"predict", "nothing is predicted; the run directory has weights.safetensors"},
    Word{"export", "did you mean 'model save' or 'data export'?"},
    Word{"benchmark", "did you mean 'compare' or 'data bench'?"},
    Word{"bench", "did you mean 'compare' or 'data bench'?"},
    Word{"sweep", "did you mean 'compare --each KEY=A,B'? A shell loop over recipes works, too"},
    Word{"torchrun", "put it before: torchrun --nproc-per-node 2 --no-python trainopt run RECIPE"},
    Word{"mpirun", "put it before: mpirun -n 2 trainopt run RECIPE"},
    Word{"config", "did you mean 'options'?"},
    Word{"schema", "did you mean 'options --schema'?"},
    Word{"version", "did you mean '--version'?"},
    Word{"resume", "did you mean 'run RECIPE --run-dir DIR checkpoint.resume=auto'?"},
    Word{"init", "did you mean 'options --yaml'? configs/ has recipes to start from"},
    Word{"lr_find", "did you mean 'find lr'?"},
    Word{"find_lr", "did you mean 'find lr'?"},
    Word{"optimize", "did you mean 'tune'?"},
    Word{"summary", "did you mean 'plan' or 'report'?"},
};

constexpr std::string_view kSeveralRanks = "several ranks are started by trainopt launch -n 2 -- run RECIPE";
constexpr std::string_view kRecipeFirst = "a recipe needs no option before it: trainopt run RECIPE";
/// Options of launchers, Hydra, Lightning, argparse and shells.
constexpr std::array kOptions = {
    Word{"m", kSeveralRanks},
    Word{"n", kSeveralRanks},
    Word{"np", kSeveralRanks},
    Word{"nproc_per_node", kSeveralRanks},
    Word{"nnodes", kSeveralRanks},
    Word{"num_processes", kSeveralRanks},
    Word{"num_gpus", kSeveralRanks},
    Word{"gpus", kSeveralRanks},
    Word{"devices", kSeveralRanks},
    Word{"multirun", "a shell loop runs several recipes, and trainopt compare --each KEY=A,B compares values"},
    Word{"local_rank", "a launcher's variables say which rank a process is; leave this out"},
    Word{"c", kRecipeFirst},
    Word{"f", kRecipeFirst},
    Word{"config", kRecipeFirst},
    Word{"config_file", kRecipeFirst},
    Word{"config_path", kRecipeFirst},
    Word{"config_name", kRecipeFirst},
    Word{"cfg", kRecipeFirst},
    Word{"recipe", kRecipeFirst},
    Word{"resume", "write checkpoint.resume=auto, with --run-dir"},
    Word{"auto_resume", "write checkpoint.resume=auto, with --run-dir"},
    Word{"o", "did you mean '--run-dir'?"},
    Word{"out", "did you mean '--run-dir'?"},
    Word{"output", "did you mean '--run-dir'?"},
    Word{"v", "did you mean '--version' or '--log-level debug'?"},
    Word{"verbose", "did you mean '--log-level debug'?"},
    Word{"debug", "did you mean '--log-level debug'?"},
    Word{"q", "did you mean '--quiet'?"},
    Word{"silent", "did you mean '--quiet'?"},
    Word{"no_colour", "did you mean '--no-color'?"},
    Word{"dry_run", "did you mean 'trainopt plan'?"},
    Word{"set", "write it as KEY=VALUE alone"},
    Word{"opts", "write it as KEY=VALUE alone"},
    Word{"cfg_options", "write it as KEY=VALUE alone"},
};

template <size_t N>
std::string_view instead_of(const std::array<Word, N>& table, const std::string& word) {
  for (const auto& [theirs, instead] : table)
    if (theirs == folded(word)) return instead;
  return "";
}

/// "; did you mean 'a'?"
std::string did_you_mean(const std::string& word) {
  return word.empty() ? "" : fmt::format("; did you mean '{}'?", word);
}

constexpr std::string_view kNoValue = "VALUE";

/// The word after `word`, unless it begins with -; otherwise VALUE.
std::string value_after(const std::string& word, const std::vector<std::string>& line) {
  const auto at = std::find(line.begin(), line.end(), word);
  const bool has_next = at != line.end() && at + 1 != line.end() && !(at + 1)->empty();
  return has_next && ((at + 1)->front() != '-' || (at + 1)->find_first_of("0123456789") == 1) ? *(at + 1)
                                                                                              : std::string(kNoValue);
}

/// "optimizer.lr=0.1", or the value that a lead has: "average.name=ema".
std::string as_override(const std::string& path, const std::string& value) {
  const size_t own = path.find(": ");
  return own == std::string::npos ? fmt::format("{}={}", path, value)
                                  : fmt::format("{}={}", path.substr(0, own), path.substr(own + 2));
}

std::string nearest_option(const CLI::App& command, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* app = &command; app; app = app->get_parent())
    for (const CLI::Option* option : app->get_options())
      for (const std::string& name : option->get_lnames()) names.push_back(name);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string near = closest_match(word, views);
  return near.empty() ? "" : "--" + near;
}

}  // namespace

std::string lead_of_command(const CLI::App& parent, const std::string& word) {
  if (word.ends_with(".yaml") || word.ends_with(".yml")) return fmt::format("; did you mean 'run {}'?", word);
  if (const auto instead = instead_of(kCommands, word); !instead.empty()) return fmt::format("; {}", instead);
  std::vector<std::string> names;
  for (const CLI::App* command : parent.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
    names.push_back(command->get_name());
  std::vector<std::string_view> views(names.begin(), names.end());
  if (const std::string near = closest_match(word, views); !near.empty()) return did_you_mean(near);
  views.clear();
  for (const Word& each : kCommands) views.push_back(each.theirs);
  const std::string theirs = closest_match(word, views);
  return theirs.empty() ? "" : fmt::format("; {}", instead_of(kCommands, theirs));
}

std::string lead_of_option(const CLI::App& command, const std::string& word, const std::vector<std::string>& line) {
  const size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  const std::string name = word.substr(dashes, word.find('=') - dashes);
  if (const auto instead = instead_of(kOptions, name); !instead.empty()) return fmt::format("; {}", instead);
  if (const std::string near = nearest_option(command, name); !near.empty()) return did_you_mean(near);
  return lead_of_key_option(word, line);
}

std::string lead_of_key_option(const std::string& word, const std::vector<std::string>& line) {
  const size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  const std::string name = word.substr(dashes, word.find('=') - dashes);
  if (dashes == 1 && lead_of_key("", name) == nullptr) return "";  // a letter is no mistyped word
  const KeyMeant meant = key_meant(name);
  if (meant.path.empty()) return meant.text.empty() ? "" : ";" + meant.text;
  std::string value = word.find('=') == std::string::npos ? value_after(word, line) : word.substr(word.find('=') + 1);
  if (value == kNoValue && meant.is_switch) value = "true";
  // What is turned off there, or has another shape here, has another value.
  for (const char* off : {"disable", "no_", "without"})
    if (folded(name).starts_with(off)) value = kNoValue;
  if (meant.is_list) value = kNoValue;
  return fmt::format("; write {}{}", as_override(meant.path, value),
                     meant.note.empty() ? "" : fmt::format(" ({})", meant.note));
}

std::string lead_of_recipe(const std::string& word, const std::vector<std::string>& line) {
  constexpr std::string_view kName = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
  const size_t begin = std::min(word.find_first_not_of("+~"), word.size());
  const size_t end = std::min(word.find_first_not_of(kName, begin), word.size());
  if (begin == end) return "";
  const std::string key = word.substr(begin, end - begin);
  const size_t sign = word.find_first_not_of(' ', end);
  const auto at = std::find(line.begin(), line.end(), word);
  const auto after = [&](std::ptrdiff_t places) {
    return at != line.end() && line.end() - at > places ? at[places] : std::string();
  };
  if (at != line.end() && at != line.begin() && (at - 1)->ends_with('='))  // "seed= 1"
    return fmt::format("; write {}{}", *(at - 1), word);
  const bool is_key = !key_meant(key).path.empty(), has_sign = sign != std::string::npos;
  std::string value;
  if (has_sign && (word[sign] == '=' || (word[sign] == ':' && is_key && word.compare(sign, 2, ":/") != 0)))
    value =
        sign + 1 == word.size() ? after(1) : word.substr(std::min(word.find_first_not_of(' ', sign + 1), word.size()));
  else if (end == word.size() && after(1) == "=")
    value = after(2);
  else if (end == word.size() && key.find('.') != std::string::npos && is_key)  // "train.max_steps 3"
    value = after(1);
  else if (begin == 0 || end != word.size())
    return "";
  if (word[0] == '~') return fmt::format("; write {}=null for the default", key);
  return fmt::format("; write {}={}", key, value.empty() ? "VALUE" : value);
}

}  // namespace trainopt
