#include "app/tuning_bench.h"

#include "app/self_command.h"
#include "base/error.h"
#include "base/files.h"
#include "recipe/recipe_io.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kWarmupSteps = 2, kEnoughSteps = 8;  // of a diagnosis
constexpr const char* kTurn = "50ms";  // a change that makes a job ten times as fast then takes half a second a turn

Verdict verdict_of(const Json& result) {
  for (const auto each : {Verdict::pays, Verdict::costs, Verdict::no_effect})
    if (result.at("verdict") == text(each)) return each;
  return Verdict::inconclusive;
}

Trial trial_from(const Json& result) {
  Trial trial{.verdict = verdict_of(result), .ratio = result.at("ratio").get<double>()};
  if (const Json& ends = result.at("interval"); !ends.is_null()) trial.interval = Interval{ends.at(0), ends.at(1)};
  if (const Json& numbers = result.at("numerics"); numbers.is_object() && numbers.at("agree").is_boolean())
    trial.numbers_agree = numbers.at("agree").get<bool>();
  return trial;
}

}  // namespace

bool CommandBench::over() const {
  return (options_.stop && *options_.stop != 0) || -seconds_since(options_.trials_until) < options_.least_trial_s;
}

fs::path CommandBench::new_folder(const std::string& name) {
  for (int64_t number = 1;; ++number) {
    const fs::path folder = options_.folder / fmt::format("{}-{}", name, number);
    if (fs::exists(folder)) continue;
    create_folders(folder);
    return folder;
  }
}

fs::path CommandBench::write_recipe(const fs::path& folder, const std::string& name, const Words& changes) const {
  auto recipe = with_words(options_.recipe, changes, options_.ranks);
  if (!recipe) throw UserError("refused: the change contradicts the recipe: " + text_of(changes));
  recipe->run_dir.reset();
  recipe->checkpoint.resume = "none";
  const fs::path file = folder / (name + ".yaml");
  write_file(file, recipe_yaml(*recipe));
  return file;
}

Json CommandBench::summary_of_run(const fs::path& folder, const fs::path& recipe, double seconds) const {
  const fs::path out = folder / fmt::format("run-{:.0f}s", seconds);
  const CommandEnd end =
      run_self({"run", recipe.string(), "--run-dir", out.string(), "--quiet", "train.max_steps=1000000000",
                "train.epochs=null", fmt::format("train.max_time={}s", seconds), "checkpoint.at_end=false",
                "evaluation.at_end=false", fmt::format("bench.warmup_steps={}", kWarmupSteps)},
               folder, options_.ranks, options_.stop);
  if (end.code != 0 && !over())
    throw UserError("the recipe cannot be tuned because it does not run: " + failure_of(end),
                    end.code < 10 ? static_cast<ExitCode>(end.code) : ExitCode::recipe);
  return end.code == 0 ? parse_json(read_file(out / "summary.json", ExitCode::storage)) : Json();
}

Diagnosis CommandBench::diagnose(const Words& changes) {
  const fs::path folder = new_folder("diagnosis");
  const fs::path file = write_recipe(folder, "recipe", changes);
  Json summary = summary_of_run(folder, file, options_.diagnosis_s);
  if (summary.is_object() && summary.at("measured_steps") < kEnoughSteps && !over())
    summary = summary_of_run(folder, file, 4 * options_.diagnosis_s);
  Diagnosis diagnosis;
  if (!summary.is_object()) return diagnosis;
  if (summary.at("limit").is_object()) diagnosis.limit = summary.at("limit").at("text");
  for (const Json& advice : summary.at("advice")) diagnosis.candidates.push_back(candidate_from(advice));
  options_.say("limited by " + (diagnosis.limit.empty() ? "nothing known" : diagnosis.limit));
  return diagnosis;
}

Trial CommandBench::compare_in(const fs::path& folder, const Words& a, const Words& b, const Words& how) try {
  Words words{"compare",
              write_recipe(folder, "a", a).string(),
              write_recipe(folder, "b", b).string(),
              "--whole",
              "--no-noise-floor",
              "--turn",
              kTurn,
              "--json",
              "--quiet",
              "--run-dir",
              (folder / "result").string()};
  words.insert(words.end(), how.begin(), how.end());
  const CommandEnd end = run_self(words, folder, options_.ranks, options_.stop);
  const fs::path result = folder / "result" / "result.json";
  if (end.code != 0) return {.failure = failure_of(end)};
  return trial_from(parse_json(read_file(result, ExitCode::storage)));
} catch (const UserError& error) {  // named recovery: a candidate that is refused is a result
  return {.failure = error.what()};
}

Trial CommandBench::compare(const Words& best, const Words& changed, double level) {
  const double left = -seconds_since(options_.trials_until);
  const double budget = std::clamp(left, options_.least_trial_s, options_.most_trial_s);
  return compare_in(new_folder("trial"), best, changed,
                    {"--level", fmt::format("{}", level), "--budget", fmt::format("{:.0f}s", budget)});
}

CommandBench::Final CommandBench::confirm(const Words& changes, double level, double budget_s) {
  const fs::path folder = new_folder("final");
  Final last{.trial = compare_in(folder, {}, changes,
                                 {"--own-processes", "--level", fmt::format("{}", level), "--precision", "2%",
                                  "--budget", fmt::format("{:.0f}s", budget_s)})};
  if (last.trial.failure.empty()) {
    const Json pairs = parse_json(read_file(folder / "result" / "result.json", ExitCode::storage)).at("pairs");
    last.pairs = pairs.is_number() ? pairs.get<int64_t>() : 0;
  }
  return last;
}

void CommandBench::measure_peaks() {
  const fs::path folder = new_folder("roofline");
  if (const CommandEnd end = run_self({"roofline", "--quiet"}, folder, 1, options_.stop); end.code != 0)
    options_.say("the machine's peaks are not known: " + failure_of(end));
}

}  // namespace trainopt
