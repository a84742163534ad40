#include "tune/tuning_bench.h"

#include "base/error.h"
#include "base/files/files.h"
#include "base/run_command.h"
#include "base/units.h"
#include "recipe/make_plan.h"
#include "recipe/memory_remedies.h"
#include "recipe/plan_machine.h"
#include "recipe/recipe_io.h"
#include "tune/memory_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace trainopt {

namespace fs = std::filesystem;
namespace {

constexpr int64_t kWarmupSteps = 2, kEnoughSteps = 8;  // steps of a diagnosis
constexpr double kStepsOfShortLook = 120;  // half of them in turns, the rest to start and to compare numbers
constexpr const char* kTurn = "50ms";  // a change that makes a job ten times as fast then takes half a second a turn

/// When a command that should take so long is ended: twice as late, and after the time that a large model may take to
/// start.
double most_s(double seconds) { return 2 * seconds + 180; }

/// Steps after which the recipe's evaluations, records and, on one rank, checkpoints repeat.
int64_t period_of(const Recipe& recipe, int64_t ranks) {
  const int64_t evaluations = recipe.evaluation.every_n_steps.value_or(1),
                checkpoints = ranks == 1 ? recipe.checkpoint.every_n_steps.value_or(1) : 1;
  return std::lcm(std::lcm(evaluations, checkpoints), recipe.logging.sinks.empty() ? 1 : recipe.logging.every_n_steps);
}

bool checkpoints_differ(const Recipe& a, const Recipe& b) {
  return a.checkpoint.every_n_steps != b.checkpoint.every_n_steps || a.checkpoint.background != b.checkpoint.background;
}
/// What comes between steps.
bool pauses_differ(const Recipe& a, const Recipe& b) {
  return checkpoints_differ(a, b) || a.evaluation.every_n_steps != b.evaluation.every_n_steps ||
         a.logging.every_n_steps != b.logging.every_n_steps;
}

Verdict verdict_of(const Json& result) {
  for (const auto each : {Verdict::pays, Verdict::costs, Verdict::no_effect})
    if (result.at("verdict") == text(each)) return each;
  return Verdict::inconclusive;
}

Trial trial_of_speed(const Json& result) {
  Trial trial{.verdict = verdict_of(result), .ratio = result.at("ratio").get<double>()};
  if (const Json& ends = result.at("interval"); !ends.is_null()) trial.interval = Interval{ends.at(0), ends.at(1)};
  return trial;
}

/// Beyond what processes of one recipe differ by: the peaks of six of a small GPT-2 were within 0.5 %.
constexpr double kLessMemory = 1.02;

/// Judges by the peaks of the processes, which on a CPU include the program and its libraries.
Trial trial_of_memory(const Json& result) {
  const Json &before = result.at("arms").at("a").at("peak_memory_mib"),
             &after = result.at("arms").at("b").at("peak_memory_mib");
  if (!before.is_number() || !after.is_number()) return {.failure = "failed: its memory was not measured"};
  const double ratio = before.get<double>() / after.get<double>();
  return {.verdict = ratio >= kLessMemory       ? Verdict::pays
                     : ratio <= 1 / kLessMemory ? Verdict::costs
                                                : Verdict::no_effect,
          .ratio = ratio,
          .speed = result.at("ratio").get<double>()};
}

Trial trial_from(const Json& result, TuningGoal goal) {
  Trial trial = goal == TuningGoal::memory ? trial_of_memory(result) : trial_of_speed(result);
  if (const Json& numbers = result.at("numerics"); numbers.is_object() && numbers.at("agree").is_boolean())
    trial.numbers_agree = numbers.at("agree").get<bool>();
  else
    trial.no_time_for_numbers = numbers.is_object() && numbers.value("too_few_twins", false);
  return trial;
}

}  // namespace

bool CommandBench::over() const { return stopped() || -seconds_since(options_.trials_until) < options_.least_trial_s; }

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
  recipe->train.target = {};
  recipe->checkpoint.resume = "none";
  const fs::path file = folder / (name + ".yaml");
  write_file(file, recipe_yaml(*recipe));
  return file;
}

Json CommandBench::summary_of_run(const fs::path& folder, const fs::path& recipe, double seconds) const {
  const fs::path out = folder / fmt::format("run-{:.0f}s", seconds);
  options_.now(fmt::format("a run of {:.0f} s, to see what limits it", seconds));
  const CommandEnd end =
      run_self({"run", recipe.string(), "--run-dir", out.string(), "--quiet", "train.max_steps=1000000000",
                "train.epochs=null", fmt::format("train.max_time={}s", seconds), "checkpoint.at_end=false",
                "evaluation.at_end=false", fmt::format("bench.warmup_steps={}", kWarmupSteps)},
               folder, options_.ranks, {.stop = options_.stop, .seconds = most_s(seconds)});
  if (end.code != 0 && !stopped())
    throw UserError("the recipe cannot be tuned because it does not run: " + failure_of(end), exit_code_of(end));
  return end.code == 0 ? parse_json(read_file(out / "summary.json", ExitCode::storage)) : Json();
}

Diagnosis CommandBench::diagnose(const Words& changes) {
  return options_.goal == TuningGoal::memory ? diagnose_memory(changes) : diagnose_time(changes);
}

Diagnosis CommandBench::diagnose_time(const Words& changes) {
  const fs::path folder = new_folder("diagnosis");
  const fs::path file = write_recipe(folder, "recipe", changes);
  Json summary = summary_of_run(folder, file, options_.diagnosis_s);
  if (summary.is_object() && summary.at("measured_steps") < kEnoughSteps && !over())
    summary = summary_of_run(folder, file, 4 * options_.diagnosis_s);
  Diagnosis diagnosis;
  if (!summary.is_object()) return diagnosis;
  if (const double steps = summary.at("steps"); steps > 0) step_s_ = summary.at("wall_s").get<double>() / steps;
  if (summary.at("limit").is_object()) diagnosis.limit = summary.at("limit").at("text");
  for (const Json& each : summary.at("candidates")) diagnosis.candidates.push_back(candidate_from(each));
  return diagnosis;
}

Diagnosis CommandBench::diagnose_memory(const Words& changes) {
  const fs::path folder = new_folder("diagnosis");
  const fs::path file = write_recipe(folder, "recipe", changes);
  const Json summary = summary_of_run(folder, file, options_.diagnosis_s);
  if (!summary.is_object() || !summary.at("peak_memory_mib").is_number()) return {};
  const double peak = summary.at("peak_memory_mib").get<double>() * (1 << 20);
  const Recipe recipe = *with_words(options_.recipe, changes, options_.ranks);
  Plan plan = make_plan(recipe, options_.machine,
                        {.rank = 0, .ranks = options_.ranks, .local_rank = 0, .local_ranks = options_.ranks});
  add_memory_forecast(recipe, plan);
  if (!plan.memory) return {};
  Diagnosis diagnosis{.limit = forecast_text(plan), .candidates = {}};
  for (const MemoryProposal& each : propose_less_memory(recipe, plan)) {
    const double left = peak - static_cast<double>(each.saved_bytes());
    diagnosis.candidates.push_back({.what = each.what,
                                    .change = each.change,
                                    .estimate = peak / std::max(left, 0.05 * peak),
                                    .exactness = each.exactness,
                                    .evidence = fmt::format("the forecast falls from {} to {}",
                                                            human_bytes(static_cast<double>(each.bytes_before)),
                                                            human_bytes(static_cast<double>(each.bytes_after)))});
  }
  return diagnosis;
}

Json CommandBench::compare_in(const fs::path& folder, const Words& a, const Words& b, const Words& how, double seconds,
                              Trial& trial) try {
  Words words{"compare",
              write_recipe(folder, "a", a).string(),
              write_recipe(folder, "b", b).string(),
              "--no-noise-floor",
              "--turn",
              kTurn,
              "--json",
              "--quiet",
              "--run-dir",
              (folder / "result").string()};
  words.insert(words.end(), how.begin(), how.end());
  words.insert(words.end(), {"--budget", fmt::format("{:.0f}s", seconds)});
  const CommandEnd end = run_self(words, folder, options_.ranks, {.stop = options_.stop, .seconds = most_s(seconds)});
  if (end.code != 0) {
    trial.failure = failure_of(end);
    return {};
  }
  Json result = parse_json(read_file(folder / "result" / "result.json", ExitCode::storage));
  trial = trial_from(result, options_.goal);
  return result;
} catch (const UserError& error) {  // named recovery: a candidate that is refused is a result
  trial.failure = error.what();
  return {};
}

double CommandBench::periods_s(const Recipe& a, const Recipe& b) const {
  constexpr int64_t kTurns = 8;  // turns in two blocks
  return kTurns * static_cast<double>(std::lcm(period_of(a, options_.ranks), period_of(b, options_.ranks))) * step_s_;
}

bool CommandBench::leaves_pauses_out(const Words& best, const Words& changed, double seconds, Trial& trial) const {
  const auto a = with_words(options_.recipe, best, options_.ranks),
             b = with_words(options_.recipe, changed, options_.ranks);
  if (!a || !b) return false;  // the comparison says why
  if (options_.ranks > 1 && checkpoints_differ(*a, *b))
    trial.failure = "not measured: a comparison of several ranks leaves checkpoints out";
  const double needed_s = periods_s(*a, *b);
  if (needed_s <= seconds) return false;
  if (pauses_differ(*a, *b))
    trial.failure = fmt::format(
        "not measured: turns over whole periods of evaluations, checkpoints and records would take {:.0f} s", needed_s);
  return true;
}

Trial CommandBench::compare(const Words& best, const Words& changed, double level, int64_t look) {
  const double left = -seconds_since(options_.trials_until);
  const double short_look = std::clamp(kStepsOfShortLook * step_s_, options_.least_trial_s, options_.most_trial_s);
  const double long_look = options_.most_trial_s * static_cast<double>(look);
  const double budget = std::clamp(left, options_.least_trial_s, std::max(short_look, long_look));
  Words how{"--level", fmt::format("{}", level)};
  if (options_.goal == TuningGoal::memory)  // what two processes take alone
    how.insert(how.end(), {"--own-processes", "--repeats", "2"});
  Trial trial;
  if (!leaves_pauses_out(best, changed, options_.most_trial_s, trial)) how.push_back("--whole");
  options_.now(fmt::format("trying {} for at most {:.0f} s", text_of(changed), budget));
  if (trial.failure.empty()) compare_in(new_folder("trial"), best, changed, how, budget, trial);
  return trial;
}

CommandBench::Final CommandBench::confirm(const Words& changes, double level, double budget_s) {
  Final last;
  Words how{"--own-processes", "--level", fmt::format("{}", level), "--precision", "2%"};
  Trial refused;  // measured all the same: the trials of the changed intervals fitted
  if (!leaves_pauses_out({}, changes, budget_s, refused) || !refused.failure.empty()) how.push_back("--whole");
  options_.now(fmt::format("the result against the original for at most {:.0f} s", budget_s));
  last.folder = new_folder("final");
  const Json result = compare_in(last.folder, {}, changes, how, budget_s, last.trial);
  if (!result.is_object()) return last;
  if (const Json& pairs = result.at("pairs"); pairs.is_number()) last.pairs = pairs.get<int64_t>();
  last.before = result.at("arms").at("a");
  last.after = result.at("arms").at("b");
  return last;
}

void CommandBench::measure_peaks() {
  const fs::path folder = new_folder("roofline");
  options_.now("measuring the machine's peaks");
  const CommandEnd end = run_self({"roofline", "--quiet", "device=" + options_.recipe.device}, folder, options_.ranks,
                                  {.stop = options_.stop, .seconds = options_.most_peaks_s});
  if (end.code != 0 && !stopped())
    options_.say("the machine's peaks are not known, so estimates are worse: " +
                 (end.took_too_long ? "the budget has no time for them; trainopt roofline measures them once"
                                    : failure_of(end)));
}

namespace {

std::string faster(double ratio) {
  return ratio < 2 ? fmt::format("{:+.1f} %", 100 * (ratio - 1)) : fmt::format("×{:.2f}", ratio);
}

std::string less(double ratio) { return fmt::format("{:+.1f} %", 100 * (1 / ratio - 1)); }

/// A line, "peak memory of a rank: 812 MiB before, 431 MiB after"; empty if it is not known.
std::string before_and_after(const CommandBench::Final& last, const char* key, const char* what, const char* unit) {
  if (!last.before.is_object()) return "";
  const Json &before = last.before.at(key), &after = last.after.at(key);
  if (!before.is_number() || !after.is_number()) return "";
  return fmt::format("\n{}: {:.4g}{} before, {:.4g}{} after", what, before.get<double>(), unit, after.get<double>(),
                     unit);
}

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

}  // namespace

std::string TuningText::gain(double ratio) const { return goal_ == TuningGoal::speed ? faster(ratio) : less(ratio); }

std::string TuningText::measured(const Trial& trial) const {
  if (!trial.ratio) return "";
  std::string text = gain(*trial.ratio);
  if (trial.interval) text += fmt::format(" ({} to {})", gain(trial.interval->low), gain(trial.interval->high));
  if (trial.speed) text += ", throughput " + faster(*trial.speed);
  return text;
}

std::string TuningText::line_of(const TuningStep& step, size_t number) const {
  const std::string numbers = measured(step.trial);
  return fmt::format("{:>3}  {}: {}\n     estimated {}{}; {}{}", number, step.candidate.what,
                     text_of(step.candidate.change), gain(step.candidate.estimate),
                     numbers.empty() ? "" : ", measured " + numbers,
                     step.kept ? "kept" : "not kept: ", step.kept ? "" : step.reason);
}

std::string TuningText::table_of(const Tuning& tuning) const {
  std::string text =
      "| | change | exactness | estimated | measured | level | result |\n|--:|---|---|--:|--:|--:|---|\n";
  for (size_t i = 0; i < tuning.steps.size(); ++i) {
    const TuningStep& step = tuning.steps[i];
    const std::string numbers = measured(step.trial);
    text += fmt::format("| {} | {}: `{}` | {} | {} | {} | {:.5g} % | {} |\n", i + 1, step.candidate.what,
                        text_of(step.candidate.change), word_of(step.candidate.exactness),
                        gain(step.candidate.estimate), numbers.empty() ? "–" : numbers, 100 * step.level,
                        step.kept ? "kept: " + step.reason : step.reason);
  }
  return text;
}

std::map<std::string, std::string> TuningText::comments(const Tuning& tuning) const {
  std::map<std::string, std::string> comments;
  for (const TuningStep& step : tuning.steps)
    if (step.kept)
      for (const std::string& word : step.candidate.change)
        comments[word.substr(0, word.find('='))] = fmt::format("{}: {}", step.candidate.what, measured(step.trial));
  return comments;
}

std::string TuningText::final_text(const CommandBench::Final& last) const {
  if (!last.trial.failure.empty()) return "the final comparison " + last.trial.failure;
  std::string text = "against the original: " + gain(last.trial.ratio.value_or(1));
  if (const auto& ends = last.trial.interval)
    text += fmt::format(", 95 % interval {} to {}", gain(ends->low), gain(ends->high));
  else
    text += ", without an interval: too few pairs were measured";
  if (last.trial.speed) text += ", throughput " + faster(*last.trial.speed);
  text += fmt::format("; {} of fresh processes", counted(last.pairs, "pair"));
  if (last.trial.numbers_agree == false) text += "; their numbers disagree";
  if (goal_ != TuningGoal::memory && last.trial.verdict != Verdict::pays)
    text += fmt::format(
        "\nnot confirmed ({}): in processes of their own the gain does not show; measure for longer before you rely on "
        "it",
        trainopt::text(last.trial.verdict));
  if (goal_ == TuningGoal::memory) text += before_and_after(last, "peak_memory_mib", "peak memory of a rank", " MiB");
  if (goal_ == TuningGoal::price)
    text += before_and_after(last, "price_per_million_samples", "price of a million samples", "");
  return text;
}

Json to_json(const CommandBench::Final& last) {
  const Trial& trial = last.trial;
  const auto of = [](const Json& arm) {
    if (!arm.is_object()) return Json();
    return Json{{"samples_per_s", arm.at("samples_per_s")},
                {"peak_memory_mib", arm.at("peak_memory_mib")},
                {"price_per_million_samples", arm.at("price_per_million_samples")}};
  };
  return {{"ratio", number_or_null(trial.ratio)},
          {"interval", trial.interval ? Json{trial.interval->low, trial.interval->high} : Json()},
          {"speed", number_or_null(trial.speed)},
          {"numbers_agree", trial.numbers_agree ? Json(*trial.numbers_agree) : Json()},
          {"pairs", last.pairs},
          {"before", of(last.before)},
          {"after", of(last.after)},
          {"failure", trial.failure.empty() ? Json() : Json(trial.failure)}};
}

}  // namespace trainopt
