#include "compare/output/comparison_text.h"

#include "base/units.h"
#include "compare/output/remarks.h"
#include "compare/output/table.h"
#include "metrics/format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace trainopt {

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

std::string with_budget(std::string_view separator, const std::string& command, double budget_s) {
  constexpr double kYear = 365 * 86400.0;
  if (budget_s > kYear) return {};
  const auto up_to = [&](double unit) { return std::ceil(budget_s / unit); };
  const std::string budget = budget_s <= 120    ? fmt::format("{:.0f}s", 10 * up_to(10))
                             : budget_s <= 7200 ? fmt::format("{:.0f}m", up_to(60))
                                                : fmt::format("{:.0f}h", up_to(3600));
  return fmt::format("{}{}{}--budget {}", separator, command, command.empty() ? "" : " ", budget);
}

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

std::string cosine_text(const Distance& direction) {
  const std::string cosine = fmt::format("cosine {:.5f}", 1 - direction.value);
  if (direction.tolerance >= 2) return cosine + " (not checked: the twins differ as much)";
  if (direction.tolerance >= 1) return cosine + " (checked only for the opposite direction: the twins differ as much)";
  return fmt::format("{} (limit {:.2f})", cosine, 1 - direction.tolerance);
}

std::string length_text(double ratio, const Distance& length) {
  const double limit = std::exp(length.tolerance);
  return limit < 2 ? fmt::format("length ×{:.3f} (limit ×{:.2f})", ratio, limit)
                   : fmt::format("length ×{:.3f} (not checked: the twins differ as much)", ratio);
}

std::string checked_text(const TensorAgreement& tensors, std::string_view what) {
  return tensors.unchecked == 0
             ? counted(tensors.tensors, what)
             : fmt::format("{} of {}", tensors.tensors, counted(tensors.tensors + tensors.unchecked, what));
}

std::string numbers_text(const Numerics& n) {
  if (!n.not_comparable.empty()) return "not compared: " + n.not_comparable;
  if (!n.agree()) return fmt::format("WRONG OR DIFFERENT: {}", fmt::join(n.disagreements(), "; "));
  std::string text = fmt::format(
      "agree to within {}: first gradients' {}, {}; updates' {}, {}; loss curves {:.2g} % apart (limit {:.2g} %)",
      n.yardstick == Yardstick::perturbed ? "rounding" : "what another seed changes", cosine_text(n.gradient_direction),
      length_text(n.gradient_norm_ratio, n.gradient_norm), cosine_text(n.update_direction),
      length_text(n.update_norm_ratio, n.update_norm), 100 * n.loss.value, 100 * n.loss.tolerance);
  if (n.gradients.tensors + n.gradients.unchecked > 0)
    text += fmt::format("; {} and {} checked individually", checked_text(n.gradients, "gradient"),
                        checked_text(n.updates, "update"));
  return text;
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

// A and B.

namespace {

/// Whether there are too few pairs of processes for an interval at the level.
bool too_few_pairs(const PairResult& c) { return c.own_processes && !c.interval; }

std::string inconclusive_text(const PairResult& c) {
  if (too_few_pairs(c))
    return fmt::format(
        "inconclusive ({}): B against A is {}; two processes of the same recipe also differ, so more pairs are needed",
        c.process_pairs() == 1 ? "one pair" : counted(c.process_pairs(), "pair"), percent_faster(c.ratio));
  if (!c.interval)
    return fmt::format("inconclusive: B against A is {}, too few blocks for an interval", percent_faster(c.ratio));
  return fmt::format("inconclusive: B against A is {}, {} interval {}", percent_faster(c.ratio), level_text(c.level),
                     percent_faster(*c.interval));
}

}  // namespace

std::string headline(const PairResult& c) {
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

std::string measured_text(const PairResult& c) {
  const auto& turns = c.blocks.front().turns;
  const bool same = turns[0].steps == turns[1].steps;
  const int64_t of_a = c.blocks.front().is_a(0) ? turns[0].steps : turns[1].steps,
                of_b = c.blocks.front().is_a(0) ? turns[1].steps : turns[0].steps;
  const std::string blocks = counted(static_cast<int64_t>(c.blocks.size()), "block");
  return fmt::format(
      "{} of 4 turns of {}, {}, {} in total",
      c.own_processes ? fmt::format("{} of processes, {}", counted(c.process_pairs(), "pair"), blocks) : blocks,
      same ? counted(of_a, "step") : fmt::format("{} (A) and {} (B)", counted(of_a, "step"), counted(of_b, "step")),
      ending(c.ended), human_seconds(c.seconds));
}

/// If slow turns are what keeps the interval wide: the ratio in a typical block. Otherwise empty.
std::string typical_text(const PairResult& c) {
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
  std::vector<std::string> all{unseen_stalls(c.pair())};
  if (c.numbers() && c.numbers()->not_comparable.empty())
    for (const auto& words : c.numbers()->not_seen()) all.push_back(words);
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
  const std::string phases = arm.phases.text();
  if (arm.samples_per_s > 0) {  // a mean, as the phases are
    const double step_ms = 1e3 * static_cast<double>(arm.facts.step_samples) / arm.samples_per_s;
    text += fmt::format(", mean step {}{}", human_milliseconds(step_ms), phases.empty() ? "" : " (" + phases + ")");
  }
  text += fmt::format(", waiting for data {:.1f} %", arm.data_wait_pct);
  for (const std::string& memory : memory_texts(arm.facts)) text += ", " + memory;
  return text + fmt::format(", first step after {}", human_seconds(arm.facts.time_to_first_step_s));
}

namespace {

/// What would decide the comparison, each with its command.
std::vector<std::string> to_decide_texts(const Comparison& c) {
  std::vector<std::string> all;
  for (const ToDecide& each : c.to_decide)
    all.push_back(each.what + (each.budget_s > 0 ? with_budget(": ", c.command, each.budget_s) : ""));
  return all;
}

std::string two_arms_text(const Comparison& c, const TextStyle& style) {
  std::string text;
  const auto line = [&](const std::string& name, const std::string& value) { text += labelled(name, value, style); };
  text += fmt::format("A  {}\nB  {}\n\n", c.arms[0].name, c.arms[1].name);
  const bool wrong = c.numbers() && c.numbers()->not_comparable.empty() && !c.numbers()->agree();
  const std::string_view paint = c.pair().verdict == Verdict::pays && !wrong   ? kGreen
                                 : c.pair().verdict == Verdict::costs || wrong ? kRed
                                                                               : kBold;
  const std::string result = wrapped(headline(c.pair()), style.columns);
  text += (style.color ? colored(result, paint) : result) + "\n";
  line("A", arm_text(c.arms[0]));
  line("B", arm_text(c.arms[1]));
  line("measured", measured_text(c.pair()));
  if (const std::string typical = typical_text(c.pair()); !typical.empty())
    line(c.sampling.own_processes ? "typical pair" : "typical block", typical);
  if (c.noise) line("noise floor", noise_text(*c.noise));
  if (c.numbers())
    line("numbers", style.color && wrong ? colored(numbers_text(*c.numbers()), kRed) : numbers_text(*c.numbers()));
  line("not seen", not_seen_text(c));
  for (const auto& switched : switch_lines({{"A", &c.arms[0].facts.receipts}, {"B", &c.arms[1].facts.receipts}}))
    line("switch", switched);
  for (const auto& warning : c.warnings) line("warning", warning);
  for (const std::string& each : to_decide_texts(c)) line("to decide", each);
  return text;
}

std::string two_arms_markdown(const Comparison& c) {
  Table table({"arm", "recipe", "samples/s", "step p50", "phases of a step", "waiting for data", "memory and traffic",
               "first step after"},
              2);
  for (const auto& [letter, arm] : {std::pair("A", &c.arms[0]), std::pair("B", &c.arms[1])}) {
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
  std::string text = fmt::format("**{}**\n\n{}\n", headline(c.pair()), table.markdown());
  text += fmt::format("\nMeasured: {}.", measured_text(c.pair()));
  if (const std::string typical = typical_text(c.pair()); !typical.empty())
    text += fmt::format(" {}: {}.", c.sampling.own_processes ? "Typical pair" : "Typical block", typical);
  if (c.noise) text += fmt::format(" Noise floor: {}.", noise_text(*c.noise));
  if (c.numbers()) text += fmt::format(" Numbers: {}.", numbers_text(*c.numbers()));
  text += fmt::format(" Not seen: {}.", not_seen_text(c));
  for (const auto& warning : c.warnings) text += fmt::format(" Warning: {}.", warning);
  for (const std::string& each : to_decide_texts(c)) text += fmt::format(" To decide: {}.", each);
  return text + "\n";
}

std::string two_arms_csv(const Comparison& c) {
  std::string text = fmt::format("pair,block,order,turn,arm,{}\n", kTurnColumns);
  for (size_t number = 0; number < c.pair().blocks.size(); ++number) {
    const Block& block = c.pair().blocks[number];
    for (size_t i = 0; i < block.turns.size(); ++i)
      text +=
          fmt::format("{},{},{},{},{},{}\n", block.pair + 1, number + 1, block.order == Order::abba ? "abba" : "baab",
                      i + 1, block.is_a(i) ? "a" : "b", turn_columns(block.turns[i], block.other_load_pct));
  }
  return text;
}

// Several arms.

/// "none, zero1 and zero2".
std::string listed(const Comparison& c, const std::vector<size_t>& arms) {
  std::string text;
  for (size_t i = 0; i < arms.size(); ++i)
    text += (i == 0 ? "" : i + 1 == arms.size() ? " and " : ", ") + c.arms[arms[i]].name;
  return text;
}

bool disagrees(const std::optional<Numerics>& numerics) {
  return numerics && numerics->not_comparable.empty() && !numerics->agree();
}

bool has_intervals(const Comparison& c) {
  return std::all_of(c.pairs.begin(), c.pairs.end(), [](const PairResult& pair) { return pair.interval.has_value(); });
}

std::string percent_text(double share) { return fmt::format("{:g} %", 100 * share); }

/// The headline if no arm is shown to be slower than the one that was measured to be the fastest.
std::string nothing_shown(const Comparison& c) {
  if (c.fastest.alike)
    return fmt::format("no effect: all arms are within ±{} of each other", percent_text(c.min_effect));
  const std::string& first = c.arms[c.fastest.arms.front()].name;
  return has_intervals(c)
             ? fmt::format("inconclusive: {} was measured to be the fastest, and no arm is shown to be slower", first)
             : fmt::format("inconclusive: {} was measured to be the fastest; too few {} for intervals", first,
                           c.sampling.own_processes ? "sets of processes" : "rounds");
}

std::string fastest_text(const Comparison& c) {
  const Fastest& fastest = c.fastest;
  if (!fastest.ahead) return nothing_shown(c);
  const std::string& first = c.arms[fastest.arms.front()].name;
  std::vector<size_t> slower;
  for (size_t arm = 0; arm < c.arms.size(); ++arm)
    if (std::find(fastest.arms.begin(), fastest.arms.end(), arm) == fastest.arms.end()) slower.push_back(arm);
  const std::string ahead =
      fmt::format("at least {:.1f} % faster than {}", 100 * (*fastest.ahead - 1),
                  fastest.arms.size() == 1 && slower.size() > 1 ? "each other arm" : listed(c, slower));
  if (fastest.arms.size() == 1) return fmt::format("{} is the fastest: {}", first, ahead);
  const std::string among = fastest.alike ? fmt::format("they are within ±{} of each other", percent_text(c.min_effect))
                            : fastest.arms.size() == 2 ? "their difference is undecided"
                                                       : "their differences are not all decided";
  return fmt::format("{} are the fastest: {}; {} is {}", listed(c, fastest.arms), among, first, ahead);
}

Table::Cell verdict_cell(const PairResult& pair) {
  return {with_range(pair.ratio, pair.interval) + " " + std::string(text(pair.verdict)), color_of(pair.verdict)};
}

/// "12.5 + 25.1 + 3.0 ms".
std::string phases_cell(const PhaseSums& phases) {
  std::vector<std::string> parts;
  for (const auto& mean : phases.means_ms()) parts.push_back(mean ? fmt::format("{:.1f}", *mean) : "–");
  return fmt::format("{} ms", fmt::join(parts, " + "));
}

Table::Cell agreement_cell(const std::optional<Numerics>& numerics) {
  if (!numerics) return {"–"};
  if (!numerics->not_comparable.empty()) return {"not compared", kDim};
  return numerics->agree() ? Table::Cell{"agree"} : Table::Cell{"DIFFER", kRed};
}

struct Column {
  std::string head;
  std::function<Table::Cell(size_t arm)> cell;
};

/// The columns that have something to show.
std::vector<Column> columns_of(const Comparison& c) {
  const auto mebibytes = [](double mib) { return Table::Cell{human_bytes(mib * 0x1p20)}; };
  const auto facts = [&](size_t arm) -> const ArmFacts& { return c.arms[arm].facts; };
  std::vector<Column> all{
      {c.key, [&](size_t arm) { return Table::Cell{c.arms[arm].name}; }},
      {"samples/s", [&](size_t arm) { return Table::Cell{human_rate(c.arms[arm].samples_per_s)}; }},
      {"against " + c.arms.front().name,
       [&](size_t arm) { return arm == 0 ? Table::Cell{"–"} : verdict_cell(c.pair(0, arm)); }},
      {"step p50",
       [&](size_t arm) {
         return Table::Cell{c.arms[arm].step_ms_p50 ? human_milliseconds(*c.arms[arm].step_ms_p50) : "–"};
       }},
      {"waiting for data",
       [&](size_t arm) { return Table::Cell{fmt::format("{:.1f} %", c.arms[arm].data_wait_pct)}; }}};
  all.push_back(
      {"forward + backward + update", [&](size_t arm) { return Table::Cell{phases_cell(c.arms[arm].phases)}; }});
  const auto any = [&](auto has) { return std::any_of(c.arms.begin(), c.arms.end(), has); };
  if (any([](const ArmResult& arm) { return arm.tokens_per_s.has_value(); }))
    all.insert(all.begin() + 2, {"tokens/s", [&](size_t arm) {
                                   const auto& rate = c.arms[arm].tokens_per_s;
                                   return Table::Cell{rate ? human_rate(*rate) : "–"};
                                 }});
  if (any([](const ArmResult& arm) { return price_per_million_samples(arm).has_value(); }))
    all.push_back({"per million samples", [&](size_t arm) {
                     const auto price = price_per_million_samples(c.arms[arm]);
                     return Table::Cell{price ? fmt::format("{:.4g}", *price) : "–"};
                   }});
  if (any([](const ArmResult& arm) { return arm.facts.peak_memory_mib.has_value(); }))
    all.push_back({"memory", [=](size_t arm) {
                     return facts(arm).peak_memory_mib ? mebibytes(*facts(arm).peak_memory_mib) : Table::Cell{"–"};
                   }});
  if (any([](const ArmResult& arm) { return !arm.facts.ranks.empty(); }))
    all.push_back({"state", [=](size_t arm) { return mebibytes(largest(facts(arm).ranks).state_mib); }});
  if (any([](const ArmResult& arm) { return arm.facts.ranks.size() > 1; }))
    all.push_back({"sent per step", [=](size_t arm) { return mebibytes(largest(facts(arm).ranks).sent_mib); }});
  if (std::any_of(c.numerics.begin(), c.numerics.end(), [](const auto& numerics) { return numerics.has_value(); }))
    all.push_back({"numbers", [&](size_t arm) { return agreement_cell(c.numerics[arm]); }});
  all.push_back(
      {"first step after", [=](size_t arm) { return Table::Cell{human_seconds(facts(arm).time_to_first_step_s)}; }});
  return all;
}

Table arms_table(const Comparison& c) {
  const std::vector<Column> columns = columns_of(c);
  std::vector<std::string> heads;
  for (const Column& column : columns) heads.push_back(column.head);
  Table table(heads, 1);
  for (size_t arm = 0; arm < c.arms.size(); ++arm) {
    Table::Row row;
    for (const Column& column : columns) row.push_back(column.cell(arm));
    table.add(std::move(row));
  }
  return table;
}

struct PairLine {
  std::string arms, result;
};

/// The pairs without the first arm.
std::vector<PairLine> other_pairs(const Comparison& c) {
  std::vector<PairLine> lines;
  for (const PairOfArms& pair : pairs_of(c.arms.size()))
    if (pair.a != 0)
      lines.push_back({fmt::format("{} against {}", c.arms[pair.b].name, c.arms[pair.a].name),
                       verdict_cell(c.pair(pair.a, pair.b)).text});
  return lines;
}

/// "2 steps (32), 1 step (64)".
std::string steps_of_arms(const Comparison& c, const std::vector<int64_t>& steps) {
  std::vector<std::string> all;
  for (size_t arm = 0; arm < steps.size(); ++arm)
    all.push_back(fmt::format("{} ({})", counted(steps[arm], "step"), c.arms[arm].name));
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string rounds_text(const Comparison& c) {
  const Round& first = c.sampling.rounds.front();
  std::vector<int64_t> steps(c.arms.size());
  for (size_t i = 0; i < first.turns.size(); ++i) steps[first.arm_of(i)] = first.turns[i].steps;
  const bool same = std::all_of(steps.begin(), steps.end(), [&](int64_t of_arm) { return of_arm == steps.front(); });
  const std::string rounds = counted(static_cast<int64_t>(c.sampling.rounds.size()), "round");
  return fmt::format(
      "{} of {} of {}, {}, {} in total; all intervals and verdicts hold together at {}, each at {:.4g} %",
      c.sampling.own_processes ? fmt::format("{} of processes, {}", counted(c.sets(), "set"), rounds) : rounds,
      counted(static_cast<int64_t>(first.turns.size()), "turn"),
      same ? counted(steps.front(), "step") : steps_of_arms(c, steps), ending(c.sampling.ended),
      human_seconds(c.sampling.seconds), level_text(c.level), 100 * pair_level(c.level, c.arms.size()));
}

/// Limits of the comparison of speed and of numbers.
std::string unseen_text(const Comparison& c) {
  double seconds = 0;
  int64_t turns = 0;
  for (const Round& round : c.sampling.rounds)
    for (const Turn& turn : round.turns) seconds += turn.seconds, ++turns;
  std::vector<std::string> all{unseen_stalls(c.turns(), seconds / static_cast<double>(turns))};
  for (const auto& numerics : c.numerics)
    if (numerics)
      for (const auto& words : numerics->not_seen())
        if (std::find(all.begin(), all.end(), words) == all.end()) all.push_back(words);
  return fmt::format("{}", fmt::join(all, "; "));
}

struct Remark {
  std::string name, text;
  std::string_view color = {};
};

/// The remarks below the tables.
std::vector<Remark> remarks_of(const Comparison& c) {
  const std::string& first = c.arms.front().name;
  std::vector<Remark> all{{"measured", rounds_text(c)}};
  if (c.noise) all.push_back({"noise floor", fmt::format("{} is A: {}", first, noise_text(*c.noise))});
  for (size_t arm = 1; arm < c.arms.size(); ++arm)
    if (c.numerics[arm] && (disagrees(c.numerics[arm]) || !c.numerics[arm]->not_comparable.empty()))
      all.push_back({"numbers",
                     fmt::format("{} (B) beside {} (A): {}", c.arms[arm].name, first, numbers_text(*c.numerics[arm])),
                     disagrees(c.numerics[arm]) ? kRed : std::string_view{}});
  all.push_back({"not seen", unseen_text(c)});
  std::vector<ArmReceipts> receipts;
  for (const ArmResult& arm : c.arms) receipts.push_back({arm.name, &arm.facts.receipts});
  for (auto& line : switch_lines(receipts)) all.push_back({"switch", std::move(line)});
  for (const auto& warning : c.warnings) all.push_back({"warning", warning});
  for (auto& each : to_decide_texts(c)) all.push_back({"to decide", std::move(each)});
  return all;
}

std::string title_of(const Comparison& c) { return fmt::format("{}, {} values of {}", c.job, c.arms.size(), c.key); }

}  // namespace

std::string headline(const Comparison& c) {
  const size_t first = c.fastest.arms.front();
  if (!disagrees(c.numerics[first])) return fastest_text(c);
  return fmt::format("{}; but the numbers of {} differ from those of {}", fastest_text(c), c.arms[first].name,
                     c.arms.front().name);
}

namespace {

std::string several_arms_text(const Comparison& c, const TextStyle& style) {
  const std::string_view paint = disagrees(c.numerics[c.fastest.arms.front()]) ? kRed
                                 : c.fastest.ahead                             ? kGreen
                                                                               : kBold;
  const std::string words = wrapped(headline(c), style.columns);
  std::string text = fmt::format("{}\n\n{}\n{}\n", title_of(c), style.color ? colored(words, paint) : words,
                                 arms_table(c).text(style));
  const auto line = [&](const std::string& name, const std::string& value) { text += labelled(name, value, style); };
  for (const auto& [arms, result] : other_pairs(c)) line("pair", fmt::format("{}: {}", arms, result));
  for (const Remark& remark : remarks_of(c))
    line(remark.name, style.color && !remark.color.empty() ? colored(remark.text, remark.color) : remark.text);
  return text;
}

std::string several_arms_markdown(const Comparison& c) {
  std::string text = fmt::format("**{}**\n\n{}\n\n{}\n", headline(c), title_of(c), arms_table(c).markdown());
  if (const auto pairs = other_pairs(c); !pairs.empty()) {
    Table table({"pair", "result"}, 1);
    for (const auto& [arms, result] : pairs) table.add({{arms}, {result}});
    text += fmt::format("\n{}\n", table.markdown());
  }
  for (const Remark& remark : remarks_of(c)) text += fmt::format("\n- {}: {}", remark.name, remark.text);
  return text + "\n";
}

std::string several_arms_csv(const Comparison& c) {
  std::string text = fmt::format("set,round,turn,arm,{}\n", kTurnColumns);
  for (size_t number = 0; number < c.sampling.rounds.size(); ++number) {
    const Round& round = c.sampling.rounds[number];
    for (size_t i = 0; i < round.turns.size(); ++i)
      text +=
          fmt::format("{},{},{},{},{}\n", round.set + 1, number + 1, i + 1,
                      csv_field(c.sampling.names[round.arm_of(i)]), turn_columns(round.turns[i], round.other_load_pct));
  }
  return text;
}

}  // namespace

std::string comparison_text(const Comparison& c, const TextStyle& style) {
  return c.is_a_and_b() ? two_arms_text(c, style) : several_arms_text(c, style);
}

std::string comparison_markdown(const Comparison& c) {
  return c.is_a_and_b() ? two_arms_markdown(c) : several_arms_markdown(c);
}

std::string comparison_csv(const Comparison& c) { return c.is_a_and_b() ? two_arms_csv(c) : several_arms_csv(c); }

}  // namespace trainopt
