#include "app/ablate_until.h"

#include "app/run_directory.h"
#include "app/signals.h"
#include "base/files.h"
#include "base/log.h"
#include "base/print.h"
#include "base/units.h"
#include "compare/comparison_text.h"
#include "compare/table.h"
#include "recipe/make_plan.h"
#include "recipe/recipe_io.h"

#include <cstdio>

namespace trainopt {
namespace fs = std::filesystem;
namespace {

/// A switch, or another part of the training that can be left out.
struct Part {
  std::string name, off;  ///< the override that leaves it out
  UntilResult result;     ///< A: without it, B: the whole recipe
};

/// What changes the mathematics of the recipe's training and can be left out of it.
std::vector<std::pair<std::string, std::string>> parts_of(const Recipe& recipe) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& name : new_math_switches(recipe)) all.emplace_back(name, switched_off(name));
  if (!std::holds_alternative<ConstantSchedule>(recipe.scheduler.schedule))
    all.emplace_back("scheduler", "scheduler.name=constant");
  if (!std::holds_alternative<NoAverageConfig>(recipe.average)) all.emplace_back("average", "average.name=none");
  return all;
}

std::vector<Part> make_parts(const Recipe& recipe, const Goal& goal, double level, double min_effect) {
  std::vector<Part> parts;
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
  for (Part& part : parts) part.result.level = each;
  return parts;
}

/// The whole recipe and each part's, with one seed, beginning with another one each time. False: a signal ended one.
bool run_seed(std::vector<Part>& parts, const fs::path& folder, int64_t index, const OutputOptions& console) {
  const Recipe& whole = parts.front().result.b.recipe;
  const int64_t seed = whole.seed + index, arms = std::ssize(parts) + 1;
  const fs::path here = folder / fmt::format("seed-{}", seed);
  std::vector<UntilRun> runs(static_cast<size_t>(arms));
  for (int64_t turn = 0; turn < arms; ++turn) {
    const auto arm = static_cast<size_t>((index + turn) % arms);
    const bool is_whole = arm == parts.size();
    const std::string name = is_whole ? "everything" : parts[arm].result.a.name;
    const auto run = run_to_target(here / (is_whole ? "everything" : "without-" + parts[arm].name), name,
                                   is_whole ? whole : parts[arm].result.a.recipe, seed);
    if (!run) return false;
    runs[arm] = *run;
    if (!console.quiet) log_info("seed {}, {}: {}", seed, name, run_text(*run));
  }
  for (size_t i = 0; i < parts.size(); ++i) parts[i].result.pairs.push_back({seed, {runs[i], runs.back()}});
  return true;
}

Json parts_json(const std::vector<Part>& parts, double level) {
  const Goal& goal = parts.front().result.goal;
  Json json = {{"schema_version", 1},
               {"kind", "ablate until"},
               {"target", {{"metric", goal.metric}, {"value", goal.value}}},
               {"level", level},
               {"parts", Json::array()}};
  for (const Part& part : parts) {
    Json one = to_json(part.result);
    one["name"] = part.name;
    one["without"] = part.off;
    json["parts"].push_back(std::move(one));
  }
  return json;
}

std::string arm_words(const UntilResult& result, size_t arm) {
  const auto seconds = result.median(arm, seconds_of);
  return fmt::format("{} of {}{}", result.reached(arm), result.pairs.size(),
                     seconds ? fmt::format(", {:.1f} s", *seconds) : "");
}

std::string parts_text(const std::vector<Part>& parts, double level) {
  Table table({"", "without it", "with it", "time without ÷ with", "verdict"}, 1);
  for (const Part& part : parts)
    table.add({{part.name},
               {arm_words(part.result, 0)},
               {arm_words(part.result, 1)},
               {ratio_text(part.result)},
               {std::string(text(part.result.verdict()))}});
  return fmt::format(
      "time to {}: runs that reached it, and their median\n\n{}\n\nall intervals together hold at {:g} %\n",
      text(parts.front().result.goal), table.text(false), 100 * level);
}

}  // namespace

int ablate_until(const Recipe& recipe, int64_t seeds, double level, double min_effect, const CompareOutput& output,
                 const OutputOptions& console) {
  const auto goal = goal_of(recipe.train.target);
  if (!goal)
    throw UserError(fmt::format("--until target needs train.target, such as train.target.{}",
                                is_language_model(recipe.model.name) ? "loss=2" : "top1_pct=97"));
  std::vector<Part> parts = make_parts(recipe, *goal, level, min_effect);
  if (const int64_t least = pairs_for(parts.front().result.level); seeds < least)
    throw UserError(fmt::format("--seeds: verdicts about {} that together hold at {:g} % need at least {}: {}",
                                counted(std::ssize(parts), "part"), 100 * level, least, seeds));
  Recipe named = recipe;
  named.name = "ablate-" + named.name;
  named.run_dir = output.run_dir.empty() ? std::nullopt : std::optional(output.run_dir);
  const fs::path folder = fs::absolute(make_run_directory(named));
  const std::function<void(const std::vector<Part>&)> write = [&](const std::vector<Part>& all) {
    write_file(folder / "result.json", json_text(parts_json(all, level), 2) + "\n");
    write_file(folder / "report.txt", parts_text(all, level));
  };
  const auto keep = keep_with(write);
  for (int64_t index = 0; index < seeds && run_seed(parts, folder, index, console); ++index) keep(parts);
  const int code = stop_signal() != 0 ? 128 + stop_signal() : 0;
  if (parts.front().result.pairs.empty()) return code;
  if (output.json)
    print_json(parts_json(parts, level));
  else
    print_text(parts_text(parts, level));
  if (!console.quiet) log_info("results are in {}", folder.string());
  return code;
}

}  // namespace trainopt
