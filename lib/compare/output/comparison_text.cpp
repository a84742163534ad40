#include "compare/output/comparison_text.h"

#include "base/units.h"
#include "compare/output/remarks.h"
#include "compare/output/table.h"
#include "metrics/format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

/// Whether there are too few pairs of processes for an interval at the level.
bool too_few_pairs(const Comparison& c) { return c.own_processes && !c.interval; }

std::string inconclusive_text(const Comparison& c) {
  if (too_few_pairs(c))
    return fmt::format(
        "inconclusive ({}): B against A is {}; two processes of the same recipe also differ, so more pairs are needed",
        c.pairs() == 1 ? "one pair" : counted(c.pairs(), "pair"), percent_faster(c.ratio));
  if (!c.interval)
    return fmt::format("inconclusive: B against A is {}, too few blocks for an interval", percent_faster(c.ratio));
  return fmt::format("inconclusive: B against A is {}, {} interval {}", percent_faster(c.ratio), level_text(c.level),
                     percent_faster(*c.interval));
}

}  // namespace

std::string headline(const Comparison& c) {
  if (c.verdict == Verdict::inconclusive || !c.interval) return inconclusive_text(c);
  const std::string measured = fmt::format("measured {}, {} interval {}", percent_faster(c.ratio), level_text(c.level),
                                           percent_faster(*c.interval));
  if (c.verdict == Verdict::no_effect)
    return fmt::format("no effect: B is within ±{:g} % of A; {}", 100 * c.min_effect, measured);
  return c.verdict == Verdict::pays
             ? fmt::format("pays: B is at least {:.1f} % faster; {}", 100 * (c.interval->low - 1), measured)
             : fmt::format("costs: B is at least {:.1f} % slower; {}", 100 * (1 - c.interval->high), measured);
}

namespace {

std::string measured_text(const Comparison& c) {
  const auto& turns = c.blocks.front().turns;
  const bool same = turns[0].steps == turns[1].steps;
  const int64_t of_a = c.blocks.front().is_a(0) ? turns[0].steps : turns[1].steps,
                of_b = c.blocks.front().is_a(0) ? turns[1].steps : turns[0].steps;
  const std::string blocks = counted(static_cast<int64_t>(c.blocks.size()), "block");
  return fmt::format(
      "{} of 4 turns of {}, {}, {} in total",
      c.own_processes ? fmt::format("{} of processes, {}", counted(c.pairs(), "pair"), blocks) : blocks,
      same ? counted(of_a, "step") : fmt::format("{} (A) and {} (B)", counted(of_a, "step"), counted(of_b, "step")),
      ending(c.ended), human_seconds(c.seconds));
}

/// If slow turns are what keeps the interval wide: the ratio in a typical block. Otherwise empty.
std::string typical_text(const Comparison& c) {
  if (!c.typical || !c.interval) return {};
  constexpr double kMuchNarrower = 0.7;
  const bool tails =
      std::log(c.typical->high / c.typical->low) < kMuchNarrower * std::log(c.interval->high / c.interval->low);
  if (!tails) return {};
  return fmt::format("B against A is {}; slow turns took {:.1f} % of A's time and {:.1f} % of B's",
                     percent_faster(*c.typical), 100 * long_turn_share(c, true), 100 * long_turn_share(c, false));
}

/// Limits of the comparison of speed and of numbers.
std::string not_seen_text(const Comparison& c) {
  std::vector<std::string> all{unseen_stalls(c)};
  if (c.numerics && c.numerics->not_comparable.empty())
    for (const auto& words : c.numerics->not_seen()) all.push_back(words);
  return fmt::format("{}", fmt::join(all, "; "));
}

std::string mib_text(double mib) { return human_bytes(mib * 0x1p20); }

/// What is known of "memory 812.0 MiB a rank, state 171.0 MiB, sends 85.4 MiB a step": the largest over the ranks.
std::vector<std::string> memory_texts(const ArmFacts& facts) {
  const RankShare most = largest(facts.ranks);
  const bool several = facts.ranks.size() > 1;
  std::vector<std::string> texts;
  if (facts.peak_memory_mib) texts.push_back("memory " + mib_text(*facts.peak_memory_mib));
  if (!facts.ranks.empty()) texts.push_back("state " + mib_text(most.state_mib));
  if (!several) return texts;
  texts.front() += " a rank";
  texts.push_back(fmt::format("sends {} a step", mib_text(most.sent_mib)));
  return texts;
}

std::string phases_text(const PhaseSums& phases) {
  const std::string text = phases.text();
  return text.empty() ? "–" : text;
}

}  // namespace

std::string arm_text(const ArmResult& arm) {
  std::string text = fmt::format("{} samples/s", human_rate(arm.samples_per_s));
  if (arm.tokens_per_s) text += fmt::format(", {} tokens/s", human_rate(*arm.tokens_per_s));
  if (const auto price = price_per_million_samples(arm)) text += fmt::format(", {:.4g} per million samples", *price);
  if (arm.step_ms_p50) text += fmt::format(", step {}", human_milliseconds(*arm.step_ms_p50));
  if (const std::string phases = arm.phases.text(); !phases.empty()) text += fmt::format(" ({})", phases);
  text += fmt::format(", waiting for data {:.1f} %", arm.data_wait_pct);
  for (const std::string& memory : memory_texts(arm.facts)) text += ", " + memory;
  return text + fmt::format(", first step after {}", human_seconds(arm.facts.time_to_first_step_s));
}

std::string comparison_text(const Comparison& c, bool color) {
  std::string text;
  const auto line = [&](const std::string& name, const std::string& value) {
    text += fmt::format("  {:<13} {}\n", name, value);
  };
  text += fmt::format("A  {}\nB  {}\n\n", c.a.name, c.b.name);
  const bool wrong = c.numerics && c.numerics->not_comparable.empty() && !c.numerics->agree();
  const std::string_view paint = c.verdict == Verdict::pays && !wrong   ? kGreen
                                 : c.verdict == Verdict::costs || wrong ? kRed
                                                                        : kBold;
  text += (color ? colored(headline(c), paint) : headline(c)) + "\n";
  line("A", arm_text(c.a));
  line("B", arm_text(c.b));
  line("measured", measured_text(c));
  if (const std::string typical = typical_text(c); !typical.empty())
    line(c.own_processes ? "typical pair" : "typical block", typical);
  if (c.noise) line("noise floor", noise_text(*c.noise));
  if (c.numerics)
    line("numbers", color && wrong ? colored(numbers_text(*c.numerics), kRed) : numbers_text(*c.numerics));
  line("not seen", not_seen_text(c));
  for (const auto& switched : switch_lines({{"A", &c.a.facts.receipts}, {"B", &c.b.facts.receipts}}))
    line("switch", switched);
  for (const auto& warning : c.warnings) line("warning", warning);
  return text;
}

std::string comparison_markdown(const Comparison& c) {
  Table table({"arm", "recipe", "samples/s", "step p50", "phases of a step", "waiting for data", "memory and traffic",
               "first step after"},
              2);
  for (const auto& [letter, arm] : {std::pair("A", &c.a), std::pair("B", &c.b)}) {
    const std::vector<std::string> memory = memory_texts(arm->facts);
    table.add({{letter},
               {arm->name},
               {human_rate(arm->samples_per_s) +
                (arm->tokens_per_s ? fmt::format(" ({} tokens/s)", human_rate(*arm->tokens_per_s)) : "")},
               {arm->step_ms_p50 ? human_milliseconds(*arm->step_ms_p50) : "–"},
               {phases_text(arm->phases)},
               {fmt::format("{:.1f} %", arm->data_wait_pct)},
               {memory.empty() ? "–" : fmt::format("{}", fmt::join(memory, ", "))},
               {human_seconds(arm->facts.time_to_first_step_s)}});
  }
  std::string text = fmt::format("**{}**\n\n{}\n", headline(c), table.markdown());
  text += fmt::format("\nMeasured: {}.", measured_text(c));
  if (const std::string typical = typical_text(c); !typical.empty())
    text += fmt::format(" {}: {}.", c.own_processes ? "Typical pair" : "Typical block", typical);
  if (c.noise) text += fmt::format(" Noise floor: {}.", noise_text(*c.noise));
  if (c.numerics) text += fmt::format(" Numbers: {}.", numbers_text(*c.numerics));
  text += fmt::format(" Not seen: {}.", not_seen_text(c));
  for (const auto& warning : c.warnings) text += fmt::format(" Warning: {}.", warning);
  return text + "\n";
}

std::string comparison_csv(const Comparison& c) {
  std::string text = fmt::format("pair,block,order,turn,arm,{}\n", kTurnColumns);
  for (size_t number = 0; number < c.blocks.size(); ++number) {
    const Block& block = c.blocks[number];
    for (size_t i = 0; i < block.turns.size(); ++i)
      text +=
          fmt::format("{},{},{},{},{},{}\n", block.pair + 1, number + 1, block.order == Order::abba ? "abba" : "baab",
                      i + 1, block.is_a(i) ? "a" : "b", turn_columns(block.turns[i], block.other_load_pct));
  }
  return text;
}

std::string percent_faster(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }
std::string percent_faster(const Interval& interval) {
  return fmt::format("{} to {}", percent_faster(interval.low), percent_faster(interval.high));
}

std::string percent_faster(double ratio, const std::optional<Interval>& interval) {
  return interval ? fmt::format("{} ({})", percent_faster(ratio), percent_faster(*interval)) : percent_faster(ratio);
}

std::string with_range(double ratio, const std::optional<Interval>& interval) {
  if (!interval) return percent_faster(ratio);
  return fmt::format("{} ({:+.1f} … {:+.1f})", percent_faster(ratio), 100 * (interval->low - 1),
                     100 * (interval->high - 1));
}

std::string_view color_of(Verdict verdict) {
  if (verdict == Verdict::pays) return kGreen;
  return verdict == Verdict::costs ? kRed : std::string_view{};
}

std::string level_text(double level) { return fmt::format("{:g} %", 100 * level); }

std::string_view ending(const std::string& ended) {
  if (ended == "decided") return "until it was decided";
  if (ended == "precision") return "until the interval was as narrow as --precision requires";
  if (ended == "unfinished") return "before it was cut off";
  if (ended == "failed") return "until an arm failed";
  if (ended == "budget") return "until the time budget was spent";
  if (ended == "repeats") return "as many as --repeats requested";
  return "until it was stopped";
}

std::string noise_text(const NoiseFloor& n) {
  return fmt::format("A against itself is {} over {}; per-block standard deviation {:.1f} %",
                     percent_faster(n.ratio, n.interval), counted(n.blocks, "block"), n.block_sd_pct);
}

std::string numbers_text(const Numerics& n) {
  if (!n.not_comparable.empty()) return "not compared: " + n.not_comparable;
  if (!n.agree()) return fmt::format("WRONG OR DIFFERENT: {}", fmt::join(n.disagreements(), "; "));
  return fmt::format(
      "agree to within {}: first gradients' cosine {:.5f} (limit {:.2f}), length ×{:.3f}; updates' cosine {:.5f} "
      "(limit {:.2f}), length ×{:.3f}; loss curves {:.2g} % apart (limit {:.2g} %){}",
      n.yardstick == Yardstick::perturbed ? "rounding" : "what another seed changes", 1 - n.gradient_direction.value,
      1 - n.gradient_direction.tolerance, n.gradient_norm_ratio, 1 - n.update_direction.value,
      1 - n.update_direction.tolerance, n.update_norm_ratio, 100 * n.loss.value, 100 * n.loss.tolerance,
      n.gradients.tensors > 0
          ? fmt::format("; {} and {} checked individually", counted(n.gradients.tensors, "gradient"),
                        counted(n.updates.tensors, "update"))
          : "");
}

std::vector<std::string> switch_lines(const std::vector<ArmReceipts>& arms) {
  const auto seen = [](const Json& receipts, const std::string& name) -> std::string {
    if (!receipts.contains(name)) return "off";
    const Json& receipt = receipts.at(name);
    return receipt.at("effective") ? receipt.at("observed").get<std::string>()
                                   : "NO EFFECT: " + receipt.at("reason").get<std::string>();
  };
  Json names;
  for (const ArmReceipts& arm : arms) names.update(*arm.receipts);
  std::vector<std::string> lines;
  for (const auto& [name, receipt] : names.items()) {
    const auto same = [&](const ArmReceipts& arm) {  // what was observed varies from step to step
      return arm.receipts->contains(name) && arm.receipts->at(name).at("requested") == receipt.at("requested") &&
             arm.receipts->at(name).at("effective") == receipt.at("effective");
    };
    if (std::all_of(arms.begin(), arms.end(), same)) continue;
    std::vector<std::string> all;
    for (const ArmReceipts& arm : arms) all.push_back(fmt::format("{} {}", arm.arm, seen(*arm.receipts, name)));
    lines.push_back(fmt::format("{}: {}", name, fmt::join(all, "; ")));
  }
  return lines;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string turn_columns(const Turn& turn, const std::optional<double>& other_load_pct) {
  const auto optional = [](const auto& value) {
    return value ? fmt::format("{:.9g}", static_cast<double>(*value)) : std::string();
  };
  return fmt::format("{},{},{:.9g},{:.9g},{:.9g},{},{},{}", turn.steps, turn.samples, turn.seconds, turn.data_wait_s,
                     turn.cpu_s, optional(turn.sm_clock_mhz), optional(turn.throttle), optional(other_load_pct));
}

}  // namespace trainopt
