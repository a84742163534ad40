// Words that people type after `trainopt` because other programs take them, and what to type here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace trainopt {

/// For the end of the message about an unknown command of `parent`: "; did you mean 'run'?"; empty if nothing is known.
std::string lead_of_command(const CLI::App& parent, const std::string& word);
/// Where `word`, which begins with -, leads after `command`. `line`: all words after the program's name, in which the
/// one after `word` may be its value.
std::string lead_of_option(const CLI::App& command, const std::string& word, const std::vector<std::string>& line);
/// The key that an option such as --precision stands for in other programs: "; write KEY=VALUE"; empty if none.
std::string lead_of_key_option(const std::string& word, const std::vector<std::string>& line);
/// Where a word leads that names no file but stands in a recipe's place: "+seed=1", "seed: 1", "seed = 1".
std::string lead_of_recipe(const std::string& word, const std::vector<std::string>& line);

}  // namespace trainopt
