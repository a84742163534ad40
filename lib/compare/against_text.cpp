#include "base/counted.h"
#include "compare/against.h"
#include "compare/comparison_text.h"
#include "compare/table.h"
#include "metrics/format.h"

namespace trainopt {
namespace {

constexpr size_t kDifferencesShown = 12;

/// The verdict in the words of a comparison.
std::string against_headline(const Against& a) {
  if (!a.interval)
    return fmt::format("inconclusive: B against A is {}; {}", percent_faster(a.ratio),
                       a.no_verdict.empty() ? "the processes do not vary at all" : a.no_verdict);
  Comparison same_words;
  same_words.verdict = a.verdict;
  same_words.ratio = a.ratio;
  same_words.interval = a.interval;
  same_words.level = a.level;
  same_words.min_effect = a.min_effect;
  return headline(same_words) + (a.no_verdict.empty() ? "" : "; " + a.no_verdict);
}

std::string stored_text(const StoredArm& arm) {
  return fmt::format("{} samples/s in {}, stored as {} of {}", human_rate(arm.samples_per_s),
                     counted(static_cast<int64_t>(arm.seconds_per_sample.size()), "process", "es"), arm.arm, arm.file);
}

std::string_view against_ending(const std::string& ended) {
  return ended == "processes" ? "as many as the stored result has, and at least three" : ending(ended);
}

std::string processes_text(const Against& a) {
  const std::vector<Round>& rounds = a.sampling.rounds;
  const auto of_first = static_cast<int64_t>(2 * end_of_measurement(rounds, 0, true));
  return fmt::format("{} of {} of {}, {}, {} in total", counted(a.processes(), "process", "es"),
                     counted(of_first, "turn"), counted(rounds.front().turns.front().steps, "step"),
                     against_ending(a.sampling.ended), human_seconds(a.sampling.seconds));
}

/// How much less this shows than a comparison, in measured numbers.
std::string not_paired_text(const Against& a) {
  std::string text = "A was measured earlier, so what has changed on the machine since counts too";
  if (!a.half_width) return text;
  text += fmt::format("; ±{:.1f} %", 100 * *a.half_width);
  if (!a.paired_half_width) return text;
  const StoredArm& stored = a.stored;
  return text + fmt::format(", where {} of processes that took turns would have ±{:.1f} %, judging by the {} stored",
                            counted(a.processes(), "pair"), 100 * *a.paired_half_width,
                            counted(stored.pairing->pairs, "pair"));
}

std::vector<std::string> difference_lines(const Against& a) {
  std::vector<std::string> lines;
  for (const Difference& one : a.differences) {
    if (lines.size() == kDifferencesShown) {
      lines.push_back(fmt::format("and {} more, in result.json", a.differences.size() - lines.size()));
      break;
    }
    lines.push_back(text(one));
  }
  return lines;
}

}  // namespace

std::string against_text(const Against& a, bool color) {
  std::string text = fmt::format("A  {}\nB  {}\n\n", a.stored.name, a.arm.name);
  const auto line = [&](const std::string& name, const std::string& value) {
    text += fmt::format("  {:<13} {}\n", name, value);
  };
  const std::string_view paint = a.verdict == Verdict::pays ? kGreen : a.verdict == Verdict::costs ? kRed : kBold;
  text += (color ? colored(against_headline(a), paint) : against_headline(a)) + "\n";
  line("A", stored_text(a.stored));
  line("B", arm_text(a.arm));
  line("measured", processes_text(a));
  line("not paired", not_paired_text(a));
  for (const auto& difference : difference_lines(a)) line("differs", difference);
  for (const auto& warning : a.warnings) line("warning", warning);
  return text;
}

std::string against_markdown(const Against& a) {
  Table table({"arm", "recipe", "samples/s", "processes"}, 2);
  table.add({{"A, stored"},
             {a.stored.name},
             {human_rate(a.stored.samples_per_s)},
             {std::to_string(a.stored.seconds_per_sample.size())}});
  table.add({{"B, now"}, {a.arm.name}, {human_rate(a.arm.samples_per_s)}, {std::to_string(a.processes())}});
  std::string text = fmt::format("**{}**\n\n{}\n\nMeasured: {}. Not paired: {}.", against_headline(a), table.markdown(),
                                 processes_text(a), not_paired_text(a));
  for (const auto& difference : difference_lines(a)) text += fmt::format(" Differs: {}.", difference);
  for (const auto& warning : a.warnings) text += fmt::format(" Warning: {}.", warning);
  return text + "\n";
}

std::string against_csv(const Against& a) {
  std::string text = fmt::format("process,turn,{}\n", kTurnColumns);
  const std::vector<Round>& rounds = a.sampling.rounds;
  for (size_t i = 0, turn_number = 0; i < rounds.size(); ++i) {
    if (i == 0 || rounds[i].set != rounds[i - 1].set) turn_number = 0;
    for (const Turn& turn : rounds[i].turns)
      text += fmt::format("{},{},{}\n", rounds[i].set + 1, ++turn_number, turn_columns(turn, rounds[i].other_load_pct));
  }
  return text;
}

}  // namespace trainopt
