#include "app/compare_until.h"

#include "base/log.h"
#include "app/run_directory.h"
#include "app/signals.h"
#include "base/files.h"
#include "base/print.h"

#include <cstdio>

namespace trainopt {
namespace fs = std::filesystem;
namespace {

Goal goal_of_both(const UntilArguments& arguments) {
  const auto a = goal_of(arguments.a.recipe.train.target), b = goal_of(arguments.b.recipe.train.target);
  if (!a || !b)
    throw UserError(
        fmt::format("--until target needs train.target in both recipes, such as train.target.{}; {} has none",
                    is_language_model(arguments.a.recipe.model.name) ? "loss=2" : "top1_pct=97",
                    a ? arguments.b.name : arguments.a.name));
  if (a->metric != b->metric || a->value != b->value)
    throw UserError(fmt::format("A and B must have the same train.target: {}, {}", text(*a), text(*b)));
  return *a;
}

/// Both runs of a seed, in turn: even seeds start with A. nullopt: a signal ended one.
std::optional<UntilPair> run_pair(const fs::path& folder, const UntilArguments& arguments, int64_t index,
                                  const OutputOptions& console) {
  UntilPair pair{.seed = arguments.a.recipe.seed + index, .runs = {}};
  for (const int64_t turn : {0, 1}) {
    const auto arm = static_cast<size_t>((index + turn) % 2);
    const NamedRecipe& named = arm == 0 ? arguments.a : arguments.b;
    const auto run = run_to_target(folder / fmt::format("seed-{}", pair.seed) / (arm == 0 ? "a" : "b"),
                                   arm == 0 ? "A" : "B", named.recipe, pair.seed);
    if (!run) return std::nullopt;
    pair.runs[arm] = *run;
    if (!console.quiet) log_info("seed {}, {}: {}", pair.seed, arm == 0 ? "A" : "B", run_text(*run));
  }
  return pair;
}

}  // namespace

int compare_until(const UntilArguments& arguments, const CompareOutput& output, const OutputOptions& console) {
  UntilResult result{.a = arguments.a,
                     .b = arguments.b,
                     .level = arguments.level,
                     .min_effect = arguments.min_effect,
                     .goal = goal_of_both(arguments),
                     .pairs = {}};
  if (const int64_t least = pairs_for(arguments.level); arguments.seeds < least)
    throw UserError(fmt::format("--seeds: a verdict at {:g} % needs at least {}: {}", 100 * arguments.level, least,
                                arguments.seeds));
  Recipe named = arguments.b.recipe;
  named.name = "compare-" + named.name;
  named.run_dir = output.run_dir.empty() ? std::nullopt : std::optional(output.run_dir);
  const fs::path folder = fs::absolute(make_run_directory(named));
  const std::function<void(const UntilResult&)> write = [&](const UntilResult& r) {
    write_file(folder / "result.json", json_text(to_json(r), 2) + "\n");
    write_file(folder / "report.txt", until_text(r));
  };
  const auto keep = keep_with(write);
  for (int64_t index = 0; index < arguments.seeds; ++index) {
    const auto pair = run_pair(folder, arguments, index, console);
    if (!pair) break;
    result.pairs.push_back(*pair);
    keep(result);
  }
  const int code = stop_signal() != 0 ? 128 + stop_signal() : 0;
  if (result.pairs.empty()) return code;
  if (output.json)
    print_json(to_json(result));
  else
    print_text(until_text(result));
  if (!console.quiet) log_info("results are in {}", folder.string());
  return code;
}

int show_until(const fs::path& folder, const CompareOutput& output) {
  output.gate.refuse(kOwnVerdict);
  const fs::path file = folder / (output.json ? "result.json" : "report.txt");
  print_text(read_file(file, ExitCode::data));
  return 0;
}

}  // namespace trainopt
