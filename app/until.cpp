#include "app/until.h"

#include "base/files/files.h"
#include "base/log.h"
#include "base/print.h"
#include "run/directory.h"
#include "run/signals.h"

#include <CLI/CLI.hpp>

#include <cstdio>

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

namespace fs = std::filesystem;
namespace {

fs::path new_folder(Recipe recipe, const std::string& command, const CompareOutput& output) {
  recipe.name = command + "-" + recipe.name;
  recipe.run_dir = output.run_dir.empty() ? std::nullopt : std::optional(output.run_dir);
  return fs::absolute(make_run_directory(recipe));
}

/// Writes the result after each seed.
template <class Result>
KeepUntil<Result> keep_in(const fs::path& folder) {
  return keep_with(std::function([folder](const Result& result) {
    write_file(folder / "result.json", json_text(to_json(result), 2) + "\n");
    write_file(folder / "report.txt", until_text(result));
  }));
}

/// Returns the exit code.
template <class Result>
int print_until(const Result& result, bool has_pairs, const fs::path& folder, const CompareOutput& output,
                const OutputOptions& console) {
  const int code = stop_signal() != 0 ? 128 + stop_signal() : 0;
  if (has_pairs) {
    if (output.json)
      print_json(to_json(result));
    else
      print_text(until_text(result));
    if (!console.quiet) log_info("results are in {}", folder.string());
  }
  std::fflush(stdout);
  say_again(console);
  return code;
}

}  // namespace

int compare_until(const UntilArguments& arguments, const CompareOutput& output, const OutputOptions& console) {
  UntilResult result = prepare_until(arguments);
  const fs::path folder = new_folder(arguments.b.recipe, "compare", output);
  {
    Status status(console);
    run_until(result, arguments.seeds, folder, observer_of(status, explain_plainly), keep_in<UntilResult>(folder));
  }
  return print_until(result, !result.pairs.empty(), folder, output, console);
}

int ablate_until(const Recipe& recipe, int64_t seeds, double level, double min_effect, const CompareOutput& output,
                 const OutputOptions& console) {
  UntilParts parts = prepare_until_parts(recipe, seeds, level, min_effect);
  const fs::path folder = new_folder(recipe, "ablate", output);
  {
    Status status(console);
    run_until_parts(parts, seeds, folder, observer_of(status, explain_plainly), keep_in<UntilParts>(folder));
  }
  return print_until(parts, !parts.parts.front().result.pairs.empty(), folder, output, console);
}

int show_until(const fs::path& folder, const CompareOutput& output) {
  output.gate.refuse(kOwnVerdict);
  const fs::path file = folder / (output.json ? "result.json" : "report.txt");
  print_text(read_file(file, ExitCode::data));
  return 0;
}

}  // namespace trainopt
