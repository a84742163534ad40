// Help for users: the list behind `trainopt options`, and a complete recipe with comments.
#pragma once

#include "config/outline.h"

namespace trainopt {

struct OptionHelp {
  std::string path;                        ///< "data.batch_size"
  std::string type, default_text, bounds;  ///< bounds may be empty
  std::vector<std::string> aliases;
  std::vector<std::string> elsewhere;  ///< names in other tools; a recipe does not accept them
  std::string help;
  std::string only_for;  ///< "optimizer.name adam, adamw"; empty if the option always exists
};

std::vector<OptionHelp> help_of(const Outline& outline);
/// The options called `key`, with this alias, or in the section `key`.
std::vector<OptionHelp> options_under(const std::vector<OptionHelp>& options, const std::string& key);
/// The options that another trainer calls so; else those with the words in their path, values, meaning or names. Case
/// and the difference between -, _ and space do not matter.
std::vector<OptionHelp> options_with_words(const std::vector<OptionHelp>& options, const std::string& words);
/// The option or section whose name is most like `key`; empty: none is.
std::string nearest_name(const std::vector<OptionHelp>& options, const std::string& key);
std::string documented_yaml_of(const Outline& outline);

}  // namespace trainopt
