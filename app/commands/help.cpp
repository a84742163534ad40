// trainopt help [COMMAND]: shows what --help after the command shows.
#include "app/commands.h"
#include "app/words/other_words.h"
#include "base/print.h"

#include <CLI/CLI.hpp>

namespace trainopt {

Command add_help(CLI::App& app) {
  CLI::App* command = app.add_subcommand("help", "Show the help of a command: help compare");
  const auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("command", *words, "A command, such as compare or data bench");
  return [=, &app](const CommandContext&) {
    const CLI::App* at = &app;
    for (const std::string& word : *words) {
      const auto inner = at->get_subcommands([&](const CLI::App* one) { return one->get_name() == word; });
      if (inner.empty()) {
        const std::string lead = lead_of_command(*at, word);
        throw UserError(fmt::format("{} has no such command: {}{}", full_name(*at), word, lead));
      }
      at = inner.front();
    }
    // App::help() would show the chosen command, which is this one.
    print_text(at->get_formatter()->make_help(at, full_name(*at), CLI::AppFormatMode::Normal));
    return 0;
  };
}

}  // namespace trainopt
