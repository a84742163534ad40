#include "app/tuning_text.h"

#include "base/units.h"

#include <fmt/format.h>

namespace trainopt {
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
        "\nnot confirmed ({}): in processes of their own the gain does not show; measure again with a "
        "longer --budget before you rely on it",
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
