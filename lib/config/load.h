// Loading a config from files and overrides, and writing a config as text.
#pragma once

#include "config/help.h"
#include "config/outline.h"
#include "config/schema.h"
#include "config/suggest.h"
#include "config/write.h"

namespace trainopt {

/// Precedence: defaults < files < overrides ("key=value" or "--key=value").
struct Sources {
  std::vector<std::filesystem::path> files;
  std::vector<std::string> overrides;
  std::string home = {};  ///< the folder that the ~ of "~/data" stands for; empty: none is known
};

template <class Config>
struct Loaded {
  Config config;
  std::vector<std::string> notes;  ///< such as options dropped because a later source changed a variant's name
  Origins origins;  ///< full key -> "recipe.yaml:3:7" or "command line 'seed=1'", for keys that a source set
};

/// What load() found besides the config itself.
struct LoadedInto {
  std::vector<Problem> problems;
  std::vector<std::string> notes;
  Origins origins;
  bool all_parsed = true;  ///< every source was valid YAML
  Value merged;            ///< what the sources give, merged
};
LoadedInto load_into(const Outline& outline, const Sources& sources);
/// Throws RecipeErrors with the problems in the order of sources and lines, if there are any.
void throw_problems(std::vector<Problem> problems, const Sources& sources);
/// Adds those of `found` whose keys have no problem yet.
void add_problems(std::vector<Problem>& problems, std::vector<Problem> found);

/// Throws RecipeErrors with all problems of all sources and those that validate(config, origins) returns, a
/// std::vector<Problem> made with problem_at(). validate() sees defaults in place of values that could not be read.
template <class Config, class Validate>
Loaded<Config> load(const Sources& sources, Validate validate) {
  Loaded<Config> loaded;
  const Outline outline = outline_of(loaded.config);
  LoadedInto into = load_into(outline, sources);
  if (into.all_parsed) add_problems(into.problems, validate(std::as_const(loaded.config), std::as_const(into.origins)));
  add_value_leads(into.problems, into.merged, outline);
  throw_problems(std::move(into.problems), sources);
  loaded.notes = std::move(into.notes);
  loaded.origins = std::move(into.origins);
  return loaded;
}
template <class Config>
Loaded<Config> load(const Sources& sources) {
  return load<Config>(sources, [](const Config&, const Origins&) { return std::vector<Problem>(); });
}

/// The resolved recipe: every option, in the order of describe(). Loading it gives an equal config.
template <class Config>
std::string to_yaml(Config config) {
  return yaml_text(value_of(outline_of(config)));
}
template <class Config>
Json to_json(Config config) {
  return json_of(value_of(outline_of(config)));
}
template <class Config>
std::vector<OptionHelp> options_of() {
  Config config;
  return help_of(outline_of(config));
}
template <class Config>
std::string documented_yaml() {
  Config config;
  return documented_yaml_of(outline_of(config));
}
template <class Config>
Json schema_of(const std::string& title = "trainopt recipe") {
  Config config;
  return schema_of_outline(outline_of(config), title);
}

// Reads a merged tree into a config and collects problems.

struct Reading {
  const Outline& root;  ///< the whole recipe, which suggestions search
  std::vector<Problem>& problems;
  Origins* origins = nullptr;  ///< if given, receives every key that the tree sets
};

/// Reads `map` (a map) into the members behind `outline`. Members keep their defaults if their key is missing, or if it
/// is null and null is not a value of their type.
void read_map(const Value& map, const Outline& outline, const std::string& section, const Reading& reading);

/// Adds problems for an unknown key, and for those within its value.
void report_unknown(const Value::Key& key, const Value& value, const std::string& section,
                    const std::vector<const Option*>& siblings, const Reading& reading);

}  // namespace trainopt
