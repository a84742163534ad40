// Shell completion: commands, options, recipes, and recipe keys with their values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace trainopt {

/// A script for `shell`, which is bash, zsh or fish, that completes the words after `trainopt`. It runs no program
/// while a user types: everything it offers but files is in it. `recipes`: names of recipes. Throws UserError for
/// another shell.
std::string completion_script(std::string_view shell, const CLI::App& program, const std::vector<std::string>& recipes);

}  // namespace trainopt
