#include "app/until_options.h"

#include <CLI/CLI.hpp>

namespace trainopt {

void UntilOptions::add_to(CLI::App& command) {
  CLI::Option* option =
      command
          .add_option("--until", until,
                      "Compare how soon both reach train.target, in whole runs with the same several seeds")
          ->type_name("target")
          ->check(CLI::IsMember({"target"}));
  command.add_option("--seeds", seeds, "--until: runs of each recipe")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000))
      ->type_name("N")
      ->needs(option);
  for (const char* in_turns :
       {"--own-processes", "--no-numbers", "--no-noise-floor", "--whole", "--precision", "--coins", "--inject",
        "--budget", "--turn", "--repeats", "--each", "--markdown", "--show", "--against"})
    option->excludes(command.get_option(in_turns));
}

}  // namespace trainopt
