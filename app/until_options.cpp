#include "app/until_options.h"

#include <CLI/CLI.hpp>

namespace trainopt {

void UntilOptions::add_to(CLI::App& command, const std::string& help) {
  CLI::Option* option =
      command.add_option("--until", until, help)->type_name("target")->check(CLI::IsMember({"target"}));
  command.add_option("--seeds", seeds, "--until: runs of each recipe")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000))
      ->type_name("N")
      ->needs(option);
  for (const char* in_turns :
       {"--own-processes", "--no-numbers", "--no-noise-floor", "--whole", "--precision", "--coins", "--inject",
        "--budget", "--turn", "--repeats", "--each", "--markdown", "--show", "--against"})
    if (CLI::Option* other = command.get_option_no_throw(in_turns)) option->excludes(other);
}

}  // namespace trainopt
