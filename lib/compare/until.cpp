#include "compare/until.h"

#include "base/files/files.h"
#include "base/run_command.h"
#include "base/units.h"
#include "compare/output/comparison_text.h"
#include "compare/output/table.h"
#include "model/catalogue.h"
#include "recipe/make_plan.h"
#include "recipe/recipe_io.h"
#include "recipe/validate.h"

#include <atomic>
#include <cmath>
#include <limits>

namespace trainopt {

namespace fs = std::filesystem;
namespace {

std::optional<double> number(const Json& json) {
  return json.is_number() ? std::optional(json.get<double>()) : std::nullopt;
}
Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

UntilRun read_run(const fs::path& folder) {
  const Json summary = parse_json(read_file(folder / "summary.json", ExitCode::storage)),
             &target = summary.at("target");
  const Json& evaluation = summary.at("evaluation");
  return {.time = {.seconds = target.at("training_s").get<double>(), .reached = target.at("reached").get<bool>()},
          .steps = target.at("step").get<int64_t>(),
          .samples = target.at("samples").get<int64_t>(),
          .resolution = target.at("resolution_steps").get<int64_t>(),
          .value = number(target.at("value")),
          .energy_j = number(target.at("energy_j")),
          .price = number(target.at("price")),
          .trained_on = evaluation.is_object() ? evaluation.value("trained_on", std::string()) : ""};
}

std::optional<double> steps_of(const UntilRun& run) { return static_cast<double>(run.steps); }
std::optional<double> samples_of(const UntilRun& run) { return static_cast<double>(run.samples); }

Json end_json(double end) { return std::isfinite(end) ? Json(end) : Json(); }

Json run_json(const UntilRun& run) {
  return {{"reached", run.time.reached},
          {"diverged", run.diverged},
          {"training_s", end_json(run.time.seconds)},
          {"steps", run.steps},
          {"samples", run.samples},
          {"value", json_of(run.value)},
          {"energy_j", json_of(run.energy_j)},
          {"price", json_of(run.price)},
          {"trained_on", run.trained_on.empty() ? Json() : Json(run.trained_on)}};
}

Json arm_json(const UntilResult& result, size_t arm) {
  const NamedRecipe& named = arm == 0 ? result.a : result.b;
  return {{"recipe", named.name},
          {"reached", result.reached(arm)},
          {"median",
           {{"training_s", json_of(result.median(arm, seconds_of))},
            {"steps", json_of(result.median(arm, steps_of))},
            {"samples", json_of(result.median(arm, samples_of))},
            {"energy_j", json_of(result.median(arm, [](const UntilRun& run) { return run.energy_j; }))},
            {"price", json_of(result.median(arm, [](const UntilRun& run) { return run.price; }))}}}};
}

std::string times_text(double ratio) { return std::isfinite(ratio) ? fmt::format("{:.3g}", ratio) : "∞"; }

std::string arm_text(const UntilResult& result, size_t arm) {
  const NamedRecipe& named = arm == 0 ? result.a : result.b;
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

/// Longer training would decide a pair only if it has a run that did not diverge.
std::string undecided_text(const UntilResult& result, int64_t undecided) {
  const int64_t hopeless = std::count_if(result.pairs.begin(), result.pairs.end(), [](const UntilPair& pair) {
    return pair.runs[0].diverged && pair.runs[1].diverged;
  });
  std::string lines;
  if (undecided > hopeless)
    lines += fmt::format("in {} nobody knows who would have been first: train longer\n",
                         counted(undecided - hopeless, "pair"));
  if (hopeless > 0) lines += fmt::format("in {} both runs diverged, so neither was first\n", counted(hopeless, "pair"));
  return lines;
}

/// How finely the times of an arm are known; empty if no run arrived.
std::string resolution_text(const UntilResult& result, size_t arm) {
  const auto steps = result.median(arm, steps_of);
  if (!steps) return "";
  const auto pair = std::find_if(result.pairs.begin(), result.pairs.end(),  // a run that diverged does not say
                                 [&](const UntilPair& each) { return !each.runs[arm].diverged; });
  TRAINOPT_CHECK(pair != result.pairs.end());
  const int64_t resolution = pair->runs[arm].resolution;
  return fmt::format("{} is evaluated every {}: its times are multiples of {:.0f} % of the median\n",
                     arm == 0 ? "A" : "B", counted(resolution, "step"), 100 * static_cast<double>(resolution) / *steps);
}

std::string trained_on_text(const UntilResult& result, size_t arm) {
  for (const UntilPair& pair : result.pairs)
    if (!pair.runs[arm].trained_on.empty())
      return fmt::format("WARNING: the evaluation data of {} is trained on: {}\n", arm == 0 ? "A" : "B",
                         pair.runs[arm].trained_on);
  return "";
}

/// "12.3 s, 400 steps", "not in 60.0 s" or "diverged".
std::string run_text(const UntilRun& run) {
  if (run.diverged) return "diverged";
  return run.time.reached ? fmt::format("{:.1f} s, {} steps", run.time.seconds, with_commas(run.steps))
                          : fmt::format("not in {:.1f} s", run.time.seconds);
}

/// "0.69 (0.56–0.82)", or why there is no interval.
std::string ratio_text(const UntilResult& result) {
  const TargetRatio ratio = result.ratio();
  const std::string middle = ratio.ratio ? times_text(*ratio.ratio) : "unknown";
  if (!ratio.interval)
    return fmt::format("{}; {} give no interval at {:.4g} %, {} do", middle,
                       counted(static_cast<int64_t>(result.pairs.size()), "seed"), 100 * result.level,
                       pairs_for(result.level));
  return fmt::format("{} ({}–{} at {:.4g} %, {})", middle, times_text(ratio.interval->low),
                     times_text(ratio.interval->high), 100 * result.level,
                     counted(static_cast<int64_t>(result.pairs.size()), "seed"));
}

}  // namespace

Verdict UntilResult::verdict() const {
  const TargetRatio all = ratio();
  return all.interval ? judge(*all.interval, min_effect) : Verdict::inconclusive;
}

std::optional<double> seconds_of(const UntilRun& run) { return run.time.seconds; }

Json to_json(const UntilResult& result) {
  const TargetRatio ratio = result.ratio();
  Json pairs = Json::array();
  for (const UntilPair& pair : result.pairs)
    pairs.push_back({{"seed", pair.seed}, {"a", run_json(pair.runs[0])}, {"b", run_json(pair.runs[1])}});
  return {{"schema_version", 1},
          {"kind", "until"},
          {"target", {{"metric", result.goal.metric}, {"value", result.goal.value}}},
          {"level", result.level},
          {"min_effect", result.min_effect},
          {"verdict", text(result.verdict())},
          {"ratio", ratio.ratio ? end_json(*ratio.ratio) : Json()},
          {"interval",
           ratio.interval ? Json::array({end_json(ratio.interval->low), end_json(ratio.interval->high)}) : Json()},
          {"undecided_pairs", ratio.undecided},
          {"arms", {{"a", arm_json(result, 0)}, {"b", arm_json(result, 1)}}},
          {"pairs", pairs}};
}

std::string until_text(const UntilResult& result) {
  std::string lines = arm_text(result, 0) + arm_text(result, 1) + "\n";
  for (const UntilPair& pair : result.pairs)
    lines += fmt::format("seed {:<6} A {:<24} B {}\n", pair.seed, run_text(pair.runs[0]), run_text(pair.runs[1]));
  lines += fmt::format("\nB {}: time to {}, A ÷ B = {}\n{}", text(result.verdict()), text(result.goal),
                       ratio_text(result), parts_text(result));
  lines += undecided_text(result, result.ratio().undecided);
  for (size_t arm = 0; arm < 2; ++arm) lines += resolution_text(result, arm) + trained_on_text(result, arm);
  return lines;
}

namespace {

/// Trains in a process of its own, which writes to `folder`. nullopt: a signal ended it. Throws UserError for any
/// failure but divergence, naming `what`.
std::optional<UntilRun> run_to_target(const fs::path& folder, const std::string& what, Recipe recipe, int64_t seed,
                                      const std::atomic<int>& stop) {
  create_folders(folder);
  recipe.seed = seed;
  recipe.run_dir.reset();
  recipe.checkpoint.resume = "none";
  write_file(folder / "recipe.yaml", recipe_yaml(recipe));
  const CommandEnd end = run_self({"run", (folder / "recipe.yaml").string(), "--run-dir", (folder / "run").string(),
                                   "--quiet", "checkpoint.at_end=false"},
                                  folder, 1, {.stop = &stop, .seconds = {}});
  if (stop != 0) return std::nullopt;
  if (end.code == static_cast<int>(ExitCode::diverged))
    return UntilRun{.time = {.seconds = std::numeric_limits<double>::infinity()}, .diverged = true};
  if (end.code != 0) throw UserError(fmt::format("{} with seed {} {}", what, seed, failure_of(end)), exit_code_of(end));
  std::error_code ignored;  // it is large, and nothing reads it
  fs::remove(folder / "run/weights.safetensors", ignored);
  return read_run(folder / "run");
}

Goal goal_of_both(const UntilArguments& arguments) {
  const auto a = goal_of(arguments.a.recipe.train.target), b = goal_of(arguments.b.recipe.train.target);
  if (!a || !b)
    throw UserError(fmt::format(
        "--until target needs train.target in both recipes, such as train.target.{}; {} has none",
        predicts_text(arguments.a.recipe) ? "loss=2" : "top1_pct=97", a ? arguments.b.name : arguments.a.name));
  if (a->metric != b->metric || a->value != b->value)
    throw UserError(fmt::format("A and B must have the same train.target: {}, {}", text(*a), text(*b)));
  return *a;
}

/// Both runs of a seed, in turn: even seeds start with A. nullopt: a signal ended one.
std::optional<UntilPair> run_pair(const fs::path& folder, const UntilResult& result, int64_t index,
                                  const Observer& observer) {
  UntilPair pair{.seed = result.a.recipe.seed + index, .runs = {}};
  for (const int64_t turn : {0, 1}) {
    const auto arm = static_cast<size_t>((index + turn) % 2);
    const NamedRecipe& named = arm == 0 ? result.a : result.b;
    observer.now(fmt::format("seed {}, {} trains", pair.seed, arm == 0 ? "A" : "B"));
    const auto run = run_to_target(folder / fmt::format("seed-{}", pair.seed) / (arm == 0 ? "a" : "b"),
                                   arm == 0 ? "A" : "B", named.recipe, pair.seed, *observer.stop);
    if (!run) return std::nullopt;
    pair.runs[arm] = *run;
    observer.report(fmt::format("seed {}, {}: {}", pair.seed, arm == 0 ? "A" : "B", run_text(*run)));
  }
  return pair;
}

}  // namespace

UntilResult prepare_until(const UntilArguments& arguments) {
  UntilResult result{.a = arguments.a,
                     .b = arguments.b,
                     .level = arguments.level,
                     .min_effect = arguments.min_effect,
                     .goal = goal_of_both(arguments),
                     .pairs = {}};
  if (const int64_t least = pairs_for(arguments.level); arguments.seeds < least)
    throw UserError(fmt::format("--seeds: a verdict at {:g} % needs at least {}: {}", 100 * arguments.level, least,
                                arguments.seeds));
  return result;
}

void run_until(UntilResult& result, int64_t seeds, const fs::path& folder, const Observer& observer,
               const KeepUntil<UntilResult>& keep) {
  for (int64_t index = 0; index < seeds; ++index) {
    const auto pair = run_pair(folder, result, index, observer);
    if (!pair) return;
    result.pairs.push_back(*pair);
    keep(result);
  }
}

namespace {

/// What changes the mathematics of the recipe's training and can be left out of it.
std::vector<std::pair<std::string, std::string>> parts_of(const Recipe& recipe) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& name : new_math_switches(recipe)) all.emplace_back(name, switched_off(name));
  if (!std::holds_alternative<ConstantSchedule>(recipe.scheduler.schedule))
    all.emplace_back("scheduler", "scheduler.name=constant");
  if (!std::holds_alternative<NoAverageConfig>(recipe.average)) all.emplace_back("average", "average.name=none");
  return all;
}

std::vector<UntilPart> make_parts(const Recipe& recipe, const Goal& goal, double level, double min_effect) {
  std::vector<UntilPart> parts;
  for (const auto& [name, off] : parts_of(recipe)) {
    const auto without = with_words(recipe, {off}, 1);
    if (!without)
      throw UserError(fmt::format("{} cannot be left out of this recipe alone: the rest contradicts {}", name, off));
    parts.push_back({name, off,
                     UntilResult{.a = {"without " + name, *without},
                                 .b = {recipe.name, recipe},
                                 .level = level,
                                 .min_effect = min_effect,
                                 .goal = goal,
                                 .pairs = {}}});
  }
  if (parts.empty())
    throw UserError(
        "--until target compares switches that change the mathematics, a schedule or an average, and this recipe has "
        "none of them on; ablate without --until measures the others");
  const double each = 1 - (1 - level) / static_cast<double>(parts.size());  // Bonferroni
  for (UntilPart& part : parts) part.result.level = each;
  return parts;
}

/// The whole recipe and each part's, with one seed, beginning with another one each time. False: a signal ended one.
bool run_seed(std::vector<UntilPart>& parts, const fs::path& folder, int64_t index, const Observer& observer) {
  const Recipe& whole = parts.front().result.b.recipe;
  const int64_t seed = whole.seed + index, arms = std::ssize(parts) + 1;
  const fs::path here = folder / fmt::format("seed-{}", seed);
  std::vector<UntilRun> runs(static_cast<size_t>(arms));
  for (int64_t turn = 0; turn < arms; ++turn) {
    const auto arm = static_cast<size_t>((index + turn) % arms);
    const bool is_whole = arm == parts.size();
    const std::string name = is_whole ? "everything" : parts[arm].result.a.name;
    observer.now(fmt::format("seed {}, {} trains", seed, name));
    const auto run = run_to_target(here / (is_whole ? "everything" : "without-" + parts[arm].name), name,
                                   is_whole ? whole : parts[arm].result.a.recipe, seed, *observer.stop);
    if (!run) return false;
    runs[arm] = *run;
    observer.report(fmt::format("seed {}, {}: {}", seed, name, run_text(*run)));
  }
  for (size_t i = 0; i < parts.size(); ++i) parts[i].result.pairs.push_back({seed, {runs[i], runs.back()}});
  return true;
}

std::string arm_words(const UntilResult& result, size_t arm) {
  const auto seconds = result.median(arm, seconds_of);
  return fmt::format("{} of {}{}", result.reached(arm), result.pairs.size(),
                     seconds ? fmt::format(", {:.1f} s", *seconds) : "");
}

}  // namespace

UntilParts prepare_until_parts(const Recipe& recipe, int64_t seeds, double level, double min_effect) {
  const auto goal = goal_of(recipe.train.target);
  if (!goal)
    throw UserError(fmt::format("--until target needs train.target, such as train.target.{}",
                                predicts_text(recipe) ? "loss=2" : "top1_pct=97"));
  UntilParts all{.parts = make_parts(recipe, *goal, level, min_effect), .level = level};
  if (const int64_t least = pairs_for(all.parts.front().result.level); seeds < least)
    throw UserError(fmt::format("--seeds: verdicts about {} that together hold at {:g} % need at least {}: {}",
                                counted(std::ssize(all.parts), "part"), 100 * level, least, seeds));
  return all;
}

void run_until_parts(UntilParts& all, int64_t seeds, const fs::path& folder, const Observer& observer,
                     const KeepUntil<UntilParts>& keep) {
  for (int64_t index = 0; index < seeds && run_seed(all.parts, folder, index, observer); ++index) keep(all);
}

Json to_json(const UntilParts& all) {
  const Goal& goal = all.parts.front().result.goal;
  Json json = {{"schema_version", 1},
               {"kind", "ablate until"},
               {"target", {{"metric", goal.metric}, {"value", goal.value}}},
               {"level", all.level},
               {"parts", Json::array()}};
  for (const UntilPart& part : all.parts) {
    Json one = to_json(part.result);
    one["name"] = part.name;
    one["without"] = part.off;
    json["parts"].push_back(std::move(one));
  }
  return json;
}

std::string until_text(const UntilParts& all) {
  Table table({"", "without it", "with it", "time without ÷ with", "verdict"}, 1);
  for (const UntilPart& part : all.parts)
    table.add({{part.name},
               {arm_words(part.result, 0)},
               {arm_words(part.result, 1)},
               {ratio_text(part.result)},
               {std::string(text(part.result.verdict()))}});
  return fmt::format(
      "time to {}: runs that reached it, and their median\n\n{}\n\nall intervals together hold at {:g} %\n",
      text(all.parts.front().result.goal), table.text(false), 100 * all.level);
}

}  // namespace trainopt
