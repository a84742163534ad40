#include "compare/comparison_text.h"

#include "base/counted.h"
#include "base/units.h"
#include "compare/comparison_warnings.h"
#include "compare/table.h"
#include "metrics/format.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

std::string level_text(double level) { return fmt::format("{:g} %", 100 * level); }

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

std::string_view ending(const std::string& ended) {
  if (ended == "decided") return "until it was decided";
  if (ended == "precision") return "until the interval was as narrow as --precision requires";
  if (ended == "failed") return "until an arm failed";
  if (ended == "budget") return "until the time budget was spent";
  if (ended == "repeats") return "as many as --repeats requested";
  return "until it was stopped";
}

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

}  // namespace

std::string arm_text(const ArmResult& arm) {
  std::string text = fmt::format("{} samples/s", human_rate(arm.samples_per_s));
  if (arm.step_ms_p50) text += fmt::format(", step {}", human_milliseconds(*arm.step_ms_p50));
  text += fmt::format(", waiting for data {:.1f} %", arm.data_wait_pct);
  if (arm.facts.peak_memory_mib) text += fmt::format(", {}", human_bytes(*arm.facts.peak_memory_mib * 0x1p20));
  return text + fmt::format(", first step after {}", human_seconds(arm.facts.time_to_first_step_s));
}

namespace {

/// Receipts on which the arms differ: switches that were on, or had an effect, in one arm only.
std::vector<std::string> switch_lines(const Comparison& c) {
  std::vector<std::string> lines;
  const auto seen = [](const Json& receipts, const std::string& name) -> std::string {
    if (!receipts.contains(name)) return "off";
    const Json& receipt = receipts.at(name);
    return receipt.at("effective") ? receipt.at("observed").get<std::string>()
                                   : "NO EFFECT: " + receipt.at("reason").get<std::string>();
  };
  Json names = c.a.facts.receipts;
  names.update(c.b.facts.receipts);
  for (const auto& [name, receipt] : names.items()) {
    const std::string in_a = seen(c.a.facts.receipts, name), in_b = seen(c.b.facts.receipts, name);
    const bool both = c.a.facts.receipts.contains(name) && c.b.facts.receipts.contains(name);
    const auto same = [&](const char* key) {
      return c.a.facts.receipts.at(name).at(key) == c.b.facts.receipts.at(name).at(key);
    };
    if (both && same("requested") && same("effective")) continue;  // what was observed varies from step to step
    lines.push_back(fmt::format("{}: A {}; B {}", name, in_a, in_b));
  }
  return lines;
}

}  // namespace

std::string percent_faster(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }
std::string percent_faster(const Interval& interval) {
  return fmt::format("{} to {}", percent_faster(interval.low), percent_faster(interval.high));
}

std::string percent_faster(double ratio, const std::optional<Interval>& interval) {
  return interval ? fmt::format("{} ({})", percent_faster(ratio), percent_faster(*interval)) : percent_faster(ratio);
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
  for (const auto& switched : switch_lines(c)) line("switch", switched);
  for (const auto& warning : c.warnings) line("warning", warning);
  return text;
}

std::string comparison_markdown(const Comparison& c) {
  Table table({"arm", "recipe", "samples/s", "step p50", "waiting for data", "memory", "first step after"}, 2);
  for (const auto& [letter, arm] : {std::pair("A", &c.a), std::pair("B", &c.b)})
    table.add({{letter},
               {arm->name},
               {human_rate(arm->samples_per_s)},
               {arm->step_ms_p50 ? human_milliseconds(*arm->step_ms_p50) : "–"},
               {fmt::format("{:.1f} %", arm->data_wait_pct)},
               {arm->facts.peak_memory_mib ? human_bytes(*arm->facts.peak_memory_mib * 0x1p20) : "–"},
               {human_seconds(arm->facts.time_to_first_step_s)}});
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
  std::string text =
      "pair,block,order,turn,arm,steps,samples,seconds,data_wait_s,cpu_s,gpu_sm_clock_mhz,gpu_throttle,other_load_"
      "pct\n";
  const auto optional = [](const auto& value) {
    return value ? fmt::format("{:.9g}", static_cast<double>(*value)) : std::string();
  };
  for (size_t number = 0; number < c.blocks.size(); ++number) {
    const Block& block = c.blocks[number];
    for (size_t i = 0; i < block.turns.size(); ++i) {
      const Turn& t = block.turns[i];
      text += fmt::format("{},{},{},{},{},{},{},{:.9g},{:.9g},{:.9g},{},{},{}\n", block.pair + 1, number + 1,
                          block.order == Order::abba ? "abba" : "baab", i + 1, block.is_a(i) ? "a" : "b", t.steps,
                          t.samples, t.seconds, t.data_wait_s, t.cpu_s, optional(t.sm_clock_mhz), optional(t.throttle),
                          optional(block.other_load_pct));
    }
  }
  return text;
}

}  // namespace trainopt
