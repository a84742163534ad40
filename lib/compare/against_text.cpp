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
  if (ended == "processes") return "as many as the stored result has, and at least three";
  if (ended == "repeats") return "as many as --repeats requested";
  if (ended == "budget") return "until the time budget was spent";
  return ended == "failed" ? "until an arm failed" : "until it was stopped";
}

std::string measured_text(const MeasuredAlone& m) {
  const ProcessTurns& first = m.processes.front();
  return fmt::format("{} of {} of {}, {}, {} in total",
                     counted(static_cast<int64_t>(m.processes.size()), "process", "es"),
                     counted(static_cast<int64_t>(first.turns.size()), "turn"),
                     counted(first.turns.front().steps, "step"), against_ending(m.ended), human_seconds(m.seconds));
}

/// How much less this shows than a comparison, in measured numbers.
std::string not_paired_text(const Against& a) {
  std::string text = "A was measured earlier, so what has changed on the machine since counts too";
  if (!a.half_width) return text;
  text += fmt::format("; ±{:.1f} %", 100 * *a.half_width);
  if (!a.paired_half_width) return text;
  const StoredArm& stored = a.stored;
  return text + fmt::format(", where {} of processes that took turns would have ±{:.1f} %, judging by the {} stored",
                            counted(static_cast<int64_t>(a.now.processes.size()), "pair"), 100 * *a.paired_half_width,
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
  std::string text = fmt::format("A  {}\nB  {}\n\n", a.stored.name, a.now.arm.name);
  const auto line = [&](const std::string& name, const std::string& value) {
    text += fmt::format("  {:<13} {}\n", name, value);
  };
  const std::string_view paint = a.verdict == Verdict::pays ? kGreen : a.verdict == Verdict::costs ? kRed : kBold;
  text += (color ? colored(against_headline(a), paint) : against_headline(a)) + "\n";
  line("A", stored_text(a.stored));
  line("B", arm_text(a.now.arm));
  line("measured", measured_text(a.now));
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
  table.add(
      {{"B, now"}, {a.now.arm.name}, {human_rate(a.now.arm.samples_per_s)}, {std::to_string(a.now.processes.size())}});
  std::string text = fmt::format("**{}**\n\n{}\n\nMeasured: {}. Not paired: {}.", against_headline(a), table.markdown(),
                                 measured_text(a.now), not_paired_text(a));
  for (const auto& difference : difference_lines(a)) text += fmt::format(" Differs: {}.", difference);
  for (const auto& warning : a.warnings) text += fmt::format(" Warning: {}.", warning);
  return text + "\n";
}

}  // namespace trainopt
