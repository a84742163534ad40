#include "app/compare_until.h"

#include "app/run_directory.h"
#include "app/self_command.h"
#include "app/signals.h"
#include "base/counted.h"
#include "base/files.h"
#include "compare/comparison_words.h"
#include "recipe/recipe_io.h"
#include "statistics/time_to_target.h"
#include "statistics/verdict.h"
#include "train/target.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace trainopt {
namespace fs = std::filesystem;
namespace {

/// One run to the target.
struct UntilRun {
  RunToTarget time;
  int64_t steps = 0, samples = 0, resolution = 0;
  std::optional<double> value, energy_j, price;
  bool diverged = false;
};

struct UntilPair {
  int64_t seed;
  std::array<UntilRun, 2> runs;  ///< A, B
};

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

std::optional<double> number(const Json& json) {
  return json.is_number() ? std::optional(json.get<double>()) : std::nullopt;
}
Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

UntilRun read_run(const fs::path& folder) {
  const Json target = parse_json(read_file(folder / "summary.json", ExitCode::storage)).at("target");
  return {.time = {.seconds = target.at("training_s").get<double>(), .reached = target.at("reached").get<bool>()},
          .steps = target.at("step").get<int64_t>(),
          .samples = target.at("samples").get<int64_t>(),
          .resolution = target.at("resolution_steps").get<int64_t>(),
          .value = number(target.at("value")),
          .energy_j = number(target.at("energy_j")),
          .price = number(target.at("price"))};
}

/// nullopt: a signal ended it.
std::optional<UntilRun> run_to_target(const fs::path& folder, const std::string& name, Recipe recipe, int64_t seed) {
  const fs::path here = folder / fmt::format("seed-{}", seed) / name, out = here / "run";
  create_folders(here);
  recipe.seed = seed;
  recipe.run_dir.reset();
  recipe.checkpoint.resume = "none";
  write_file(here / "recipe.yaml", recipe_yaml(recipe));
  const CommandEnd end = run_self(
      {"run", (here / "recipe.yaml").string(), "--run-dir", out.string(), "--quiet", "checkpoint.at_end=false"}, here,
      1, {.stop = &stop_signal(), .seconds = {}});
  if (stop_signal() != 0) return std::nullopt;
  if (end.code == static_cast<int>(ExitCode::diverged))
    return UntilRun{.time = {.seconds = std::numeric_limits<double>::infinity()}, .diverged = true};
  if (end.code != 0)
    throw UserError(fmt::format("{} with seed {} {}", name == "a" ? "A" : "B", seed, failure_of(end)),
                    exit_code_of(end));
  std::error_code ignored;  // it is large, and nothing reads it
  fs::remove(out / "weights.safetensors", ignored);
  return read_run(out);
}

/// What all pairs together say.
struct UntilResult {
  const UntilArguments& arguments;
  Goal goal;
  std::vector<UntilPair> pairs;

  TargetRatio ratio() const {
    std::vector<PairToTarget> times;
    for (const UntilPair& pair : pairs) times.push_back({pair.runs[0].time, pair.runs[1].time});
    return target_ratio(times, arguments.level);
  }
  int64_t reached(size_t arm) const {
    return std::count_if(pairs.begin(), pairs.end(), [&](const UntilPair& p) { return p.runs[arm].time.reached; });
  }
  /// Of the runs of an arm that arrived; nullopt if none did, or none has the number.
  template <class Number>
  std::optional<double> median(size_t arm, Number number_of) const {
    std::vector<double> values;
    for (const UntilPair& pair : pairs)
      if (pair.runs[arm].time.reached)
        if (const std::optional<double> value = number_of(pair.runs[arm])) values.push_back(*value);
    if (values.empty()) return std::nullopt;
    std::sort(values.begin(), values.end());
    return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
  }
};

std::optional<double> seconds_of(const UntilRun& run) { return run.time.seconds; }
std::optional<double> steps_of(const UntilRun& run) { return static_cast<double>(run.steps); }
std::optional<double> samples_of(const UntilRun& run) { return static_cast<double>(run.samples); }

Verdict verdict_of(const TargetRatio& ratio, double min_effect) {
  return ratio.interval ? judge(*ratio.interval, min_effect) : Verdict::inconclusive;
}

Json end_json(double end) { return std::isfinite(end) ? Json(end) : Json(); }

Json run_json(const UntilRun& run) {
  return {{"reached", run.time.reached},
          {"diverged", run.diverged},
          {"training_s", end_json(run.time.seconds)},
          {"steps", run.steps},
          {"samples", run.samples},
          {"value", json_of(run.value)},
          {"energy_j", json_of(run.energy_j)},
          {"price", json_of(run.price)}};
}

Json arm_json(const UntilResult& result, size_t arm) {
  const UntilArm& named = arm == 0 ? result.arguments.a : result.arguments.b;
  return {{"recipe", named.name},
          {"reached", result.reached(arm)},
          {"median",
           {{"training_s", json_of(result.median(arm, seconds_of))},
            {"steps", json_of(result.median(arm, steps_of))},
            {"samples", json_of(result.median(arm, samples_of))},
            {"energy_j", json_of(result.median(arm, [](const UntilRun& run) { return run.energy_j; }))},
            {"price", json_of(result.median(arm, [](const UntilRun& run) { return run.price; }))}}}};
}

Json to_json(const UntilResult& result) {
  const TargetRatio ratio = result.ratio();
  Json pairs = Json::array();
  for (const UntilPair& pair : result.pairs)
    pairs.push_back({{"seed", pair.seed}, {"a", run_json(pair.runs[0])}, {"b", run_json(pair.runs[1])}});
  return {{"schema_version", 1},
          {"kind", "until"},
          {"target", {{"metric", result.goal.metric}, {"value", result.goal.value}}},
          {"level", result.arguments.level},
          {"min_effect", result.arguments.min_effect},
          {"verdict", text(verdict_of(ratio, result.arguments.min_effect))},
          {"ratio", ratio.ratio ? end_json(*ratio.ratio) : Json()},
          {"interval",
           ratio.interval ? Json::array({end_json(ratio.interval->low), end_json(ratio.interval->high)}) : Json()},
          {"undecided_pairs", ratio.undecided},
          {"arms", {{"a", arm_json(result, 0)}, {"b", arm_json(result, 1)}}},
          {"pairs", pairs}};
}

std::string run_text(const UntilRun& run) {
  if (run.diverged) return "diverged";
  return run.time.reached ? fmt::format("{:.1f} s, {} steps", run.time.seconds, with_commas(run.steps))
                          : fmt::format("not in {:.1f} s", run.time.seconds);
}

std::string ratio_text(double ratio) { return std::isfinite(ratio) ? fmt::format("{:.3g}", ratio) : "∞"; }

std::string arm_text(const UntilResult& result, size_t arm) {
  const UntilArm& named = arm == 0 ? result.arguments.a : result.arguments.b;
  const auto seconds = result.median(arm, seconds_of), steps = result.median(arm, steps_of),
             samples = result.median(arm, samples_of);
  const auto runs = static_cast<int64_t>(result.pairs.size());
  std::string line = fmt::format("{}  {}\n   reached in {} of {}", arm == 0 ? "A" : "B", named.name,
                                 result.reached(arm), counted(runs, "run"));
  if (seconds)
    line += fmt::format("; median {:.1f} s, {:.0f} steps, {} samples", *seconds, *steps,
                        with_commas(static_cast<int64_t>(*samples)));
  if (const auto joules = result.median(arm, [](const UntilRun& run) { return run.energy_j; }))
    line += fmt::format(", {:.0f} J", *joules);
  if (const auto price = result.median(arm, [](const UntilRun& run) { return run.price; }))
    line += fmt::format(", price {:.3g}", *price);
  return line + "\n";
}

/// What the ratio of times is made of; empty unless both arms arrived.
std::string parts_text(const UntilResult& result) {
  std::array<std::optional<double>, 2> seconds, steps;
  for (size_t arm = 0; arm < 2; ++arm) {
    seconds[arm] = result.median(arm, seconds_of);
    steps[arm] = result.median(arm, steps_of);
  }
  if (!seconds[0] || !seconds[1]) return "";
  const double more_steps = *steps[1] / *steps[0], step_time = *seconds[1] / *seconds[0] / more_steps;
  return fmt::format("B needs {:.2f} times the steps of A, each with {:.2f} times its time (medians)\n", more_steps,
                     step_time);
}

std::string until_text(const UntilResult& result) {
  std::string lines = arm_text(result, 0) + arm_text(result, 1) + "\n";
  for (const UntilPair& pair : result.pairs)
    lines += fmt::format("seed {:<6} A {:<24} B {}\n", pair.seed, run_text(pair.runs[0]), run_text(pair.runs[1]));
  const TargetRatio ratio = result.ratio();
  const Verdict verdict = verdict_of(ratio, result.arguments.min_effect);
  lines += fmt::format("\nB {}: time to {}, A ÷ B = {}", text(verdict), text(result.goal),
                       ratio.ratio ? ratio_text(*ratio.ratio) : "unknown");
  if (ratio.interval)
    lines += fmt::format(" ({}–{} at {:g} %, {})", ratio_text(ratio.interval->low), ratio_text(ratio.interval->high),
                         100 * result.arguments.level, counted(static_cast<int64_t>(result.pairs.size()), "seed"));
  else
    lines += fmt::format("; {} seeds give no interval at {:g} %, {} do", result.pairs.size(),
                         100 * result.arguments.level, pairs_for(result.arguments.level));
  lines += "\n" + parts_text(result);
  if (ratio.undecided > 0)
    lines +=
        fmt::format("in {} nobody knows who would have been first: train longer\n", counted(ratio.undecided, "pair"));
  for (size_t arm = 0; arm < 2; ++arm)
    if (const auto steps = result.median(arm, steps_of))
      lines += fmt::format("{} is evaluated every {}: its times are multiples of {:.0f} % of the median\n",
                           arm == 0 ? "A" : "B", counted(result.pairs.front().runs[arm].resolution, "step"),
                           100 * static_cast<double>(result.pairs.front().runs[arm].resolution) / *steps);
  return lines;
}

/// Both runs of a seed, in turn: even seeds start with A. nullopt: a signal ended one.
std::optional<UntilPair> run_pair(const fs::path& folder, const UntilArguments& arguments, int64_t index,
                                  const OutputOptions& console) {
  UntilPair pair{.seed = arguments.a.recipe.seed + index, .runs = {}};
  for (const int64_t turn : {0, 1}) {
    const auto arm = static_cast<size_t>((index + turn) % 2);
    const UntilArm& named = arm == 0 ? arguments.a : arguments.b;
    const auto run = run_to_target(folder, arm == 0 ? "a" : "b", named.recipe, pair.seed);
    if (!run) return std::nullopt;
    pair.runs[arm] = *run;
    if (!console.quiet) spdlog::info("seed {}, {}: {}", pair.seed, arm == 0 ? "A" : "B", run_text(*run));
  }
  return pair;
}

}  // namespace

int compare_until(const UntilArguments& arguments, const CompareOutput& output, const OutputOptions& console) {
  UntilResult result{arguments, goal_of_both(arguments), {}};
  if (const int64_t least = pairs_for(arguments.level); arguments.seeds < least)
    throw UserError(fmt::format("--seeds: a verdict at {:g} % needs at least {}: {}", 100 * arguments.level, least,
                                arguments.seeds));
  Recipe named = arguments.b.recipe;
  named.name = "compare-" + named.name;
  named.run_dir = output.run_dir.empty() ? std::nullopt : std::optional(output.run_dir);
  const fs::path folder = fs::absolute(make_run_directory(named));
  const std::function<void(const UntilResult&)> write = [&](const UntilResult& r) {
    write_file(folder / "result.json", json_text(to_json(r), 2) + "\n");
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
    std::fputs(until_text(result).c_str(), stdout);
  if (!console.quiet) spdlog::info("results are in {}", folder.string());
  return code;
}

}  // namespace trainopt
