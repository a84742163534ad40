#include "compare/output/rotation_text.h"

#include "base/units.h"
#include "compare/output/comparison_text.h"
#include "compare/output/remarks.h"
#include "compare/output/table.h"
#include "metrics/format.h"

#include <algorithm>
#include <functional>

namespace trainopt {
namespace {

/// "none, zero1 and zero2".
std::string listed(const Rotation& r, const std::vector<size_t>& arms) {
  std::string text;
  for (size_t i = 0; i < arms.size(); ++i)
    text += (i == 0 ? "" : i + 1 == arms.size() ? " and " : ", ") + r.arms[arms[i]].name;
  return text;
}

bool disagrees(const std::optional<Numerics>& numerics) {
  return numerics && numerics->not_comparable.empty() && !numerics->agree();
}

bool has_intervals(const Rotation& r) {
  return std::all_of(r.pairs.begin(), r.pairs.end(), [](const Comparison& pair) { return pair.interval.has_value(); });
}

std::string percent_text(double share) { return fmt::format("{:g} %", 100 * share); }

/// The headline if no arm is shown to be slower than the one that was measured to be the fastest.
std::string nothing_shown(const Rotation& r) {
  if (r.fastest.alike)
    return fmt::format("no effect: all arms are within ±{} of each other", percent_text(r.min_effect));
  const std::string& first = r.arms[r.fastest.arms.front()].name;
  return has_intervals(r)
             ? fmt::format("inconclusive: {} was measured to be the fastest, and no arm is shown to be slower", first)
             : fmt::format("inconclusive: {} was measured to be the fastest; too few {} for intervals", first,
                           r.sampling.own_processes ? "sets of processes" : "rounds");
}

std::string fastest_text(const Rotation& r) {
  const Fastest& fastest = r.fastest;
  if (!fastest.ahead) return nothing_shown(r);
  const std::string& first = r.arms[fastest.arms.front()].name;
  std::vector<size_t> slower;
  for (size_t arm = 0; arm < r.arms.size(); ++arm)
    if (std::find(fastest.arms.begin(), fastest.arms.end(), arm) == fastest.arms.end()) slower.push_back(arm);
  const std::string ahead =
      fmt::format("at least {:.1f} % faster than {}", 100 * (*fastest.ahead - 1),
                  fastest.arms.size() == 1 && slower.size() > 1 ? "each other arm" : listed(r, slower));
  if (fastest.arms.size() == 1) return fmt::format("{} is the fastest: {}", first, ahead);
  const std::string among = fastest.alike ? fmt::format("they are within ±{} of each other", percent_text(r.min_effect))
                            : fastest.arms.size() == 2 ? "their difference is undecided"
                                                       : "their differences are not all decided";
  return fmt::format("{} are the fastest: {}; {} is {}", listed(r, fastest.arms), among, first, ahead);
}

Table::Cell verdict_cell(const Comparison& pair) {
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
std::vector<Column> columns_of(const Rotation& r) {
  const auto mebibytes = [](double mib) { return Table::Cell{human_bytes(mib * 0x1p20)}; };
  const auto facts = [&](size_t arm) -> const ArmFacts& { return r.arms[arm].facts; };
  std::vector<Column> all{
      {r.key, [&](size_t arm) { return Table::Cell{r.arms[arm].name}; }},
      {"samples/s", [&](size_t arm) { return Table::Cell{human_rate(r.arms[arm].samples_per_s)}; }},
      {"against " + r.arms.front().name,
       [&](size_t arm) { return arm == 0 ? Table::Cell{"–"} : verdict_cell(r.pair(0, arm)); }},
      {"step p50",
       [&](size_t arm) {
         return Table::Cell{r.arms[arm].step_ms_p50 ? human_milliseconds(*r.arms[arm].step_ms_p50) : "–"};
       }},
      {"waiting for data",
       [&](size_t arm) { return Table::Cell{fmt::format("{:.1f} %", r.arms[arm].data_wait_pct)}; }}};
  all.push_back(
      {"forward + backward + update", [&](size_t arm) { return Table::Cell{phases_cell(r.arms[arm].phases)}; }});
  const auto any = [&](auto has) { return std::any_of(r.arms.begin(), r.arms.end(), has); };
  if (any([](const ArmResult& arm) { return arm.tokens_per_s.has_value(); }))
    all.insert(all.begin() + 2, {"tokens/s", [&](size_t arm) {
                                   const auto& rate = r.arms[arm].tokens_per_s;
                                   return Table::Cell{rate ? human_rate(*rate) : "–"};
                                 }});
  if (any([](const ArmResult& arm) { return price_per_million_samples(arm).has_value(); }))
    all.push_back({"per million samples", [&](size_t arm) {
                     const auto price = price_per_million_samples(r.arms[arm]);
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
  if (std::any_of(r.numerics.begin(), r.numerics.end(), [](const auto& numerics) { return numerics.has_value(); }))
    all.push_back({"numbers", [&](size_t arm) { return agreement_cell(r.numerics[arm]); }});
  all.push_back(
      {"first step after", [=](size_t arm) { return Table::Cell{human_seconds(facts(arm).time_to_first_step_s)}; }});
  return all;
}

Table arms_table(const Rotation& r) {
  const std::vector<Column> columns = columns_of(r);
  std::vector<std::string> heads;
  for (const Column& column : columns) heads.push_back(column.head);
  Table table(heads, 1);
  for (size_t arm = 0; arm < r.arms.size(); ++arm) {
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
std::vector<PairLine> other_pairs(const Rotation& r) {
  std::vector<PairLine> lines;
  for (const PairOfArms& pair : pairs_of(r.arms.size()))
    if (pair.a != 0)
      lines.push_back({fmt::format("{} against {}", r.arms[pair.b].name, r.arms[pair.a].name),
                       verdict_cell(r.pair(pair.a, pair.b)).text});
  return lines;
}

std::string rounds_text(const Rotation& r) {
  const Round& first = r.sampling.rounds.front();
  std::vector<int64_t> steps(r.arms.size());
  for (size_t i = 0; i < first.turns.size(); ++i) steps[first.arm_of(i)] = first.turns[i].steps;
  const bool same = std::all_of(steps.begin(), steps.end(), [&](int64_t of_arm) { return of_arm == steps.front(); });
  const std::string rounds = counted(static_cast<int64_t>(r.sampling.rounds.size()), "round");
  return fmt::format(
      "{} of {} of {}, {}, {} in total; all intervals and verdicts hold together at {}, each at {:.4g} %",
      r.sampling.own_processes ? fmt::format("{} of processes, {}", counted(r.sets(), "set"), rounds) : rounds,
      counted(static_cast<int64_t>(first.turns.size()), "turn"),
      same ? counted(steps.front(), "step") : fmt::format("{} steps", fmt::join(steps, ", ")), ending(r.sampling.ended),
      human_seconds(r.sampling.seconds), level_text(r.level), 100 * pair_level(r.level, r.arms.size()));
}

/// Limits of the comparison of speed and of numbers.
std::string unseen_text(const Rotation& r) {
  double seconds = 0;
  int64_t turns = 0;
  for (const Round& round : r.sampling.rounds)
    for (const Turn& turn : round.turns) seconds += turn.seconds, ++turns;
  std::vector<std::string> all{unseen_stalls(r.turns(), seconds / static_cast<double>(turns))};
  for (const auto& numerics : r.numerics)
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
std::vector<Remark> remarks_of(const Rotation& r) {
  const std::string& first = r.arms.front().name;
  std::vector<Remark> all{{"measured", rounds_text(r)}};
  if (r.noise) all.push_back({"noise floor", fmt::format("{} is A: {}", first, noise_text(*r.noise))});
  for (size_t arm = 1; arm < r.arms.size(); ++arm)
    if (r.numerics[arm] && (disagrees(r.numerics[arm]) || !r.numerics[arm]->not_comparable.empty()))
      all.push_back({"numbers",
                     fmt::format("{} (B) beside {} (A): {}", r.arms[arm].name, first, numbers_text(*r.numerics[arm])),
                     disagrees(r.numerics[arm]) ? kRed : std::string_view{}});
  all.push_back({"not seen", unseen_text(r)});
  std::vector<ArmReceipts> receipts;
  for (const ArmResult& arm : r.arms) receipts.push_back({arm.name, &arm.facts.receipts});
  for (auto& line : switch_lines(receipts)) all.push_back({"switch", std::move(line)});
  for (const auto& warning : r.warnings) all.push_back({"warning", warning});
  return all;
}

std::string title_of(const Rotation& r) { return fmt::format("{}, {} values of {}", r.job, r.arms.size(), r.key); }

}  // namespace

std::string headline(const Rotation& r) {
  const size_t first = r.fastest.arms.front();
  if (!disagrees(r.numerics[first])) return fastest_text(r);
  return fmt::format("{}; but the numbers of {} differ from those of {}", fastest_text(r), r.arms[first].name,
                     r.arms.front().name);
}

std::string rotation_text(const Rotation& r, bool color) {
  const std::string_view paint = disagrees(r.numerics[r.fastest.arms.front()]) ? kRed
                                 : r.fastest.ahead                             ? kGreen
                                                                               : kBold;
  std::string text = fmt::format("{}\n\n{}\n{}\n", title_of(r), color ? colored(headline(r), paint) : headline(r),
                                 arms_table(r).text(color));
  const auto line = [&](const std::string& name, const std::string& value) {
    text += fmt::format("  {:<13} {}\n", name, value);
  };
  for (const auto& [arms, result] : other_pairs(r)) line("pair", fmt::format("{}: {}", arms, result));
  for (const Remark& remark : remarks_of(r))
    line(remark.name, color && !remark.color.empty() ? colored(remark.text, remark.color) : remark.text);
  return text;
}

std::string rotation_markdown(const Rotation& r) {
  std::string text = fmt::format("**{}**\n\n{}\n\n{}\n", headline(r), title_of(r), arms_table(r).markdown());
  if (const auto pairs = other_pairs(r); !pairs.empty()) {
    Table table({"pair", "result"}, 1);
    for (const auto& [arms, result] : pairs) table.add({{arms}, {result}});
    text += fmt::format("\n{}\n", table.markdown());
  }
  for (const Remark& remark : remarks_of(r)) text += fmt::format("\n- {}: {}", remark.name, remark.text);
  return text + "\n";
}

std::string rotation_csv(const Rotation& r) {
  std::string text = fmt::format("set,round,turn,arm,{}\n", kTurnColumns);
  for (size_t number = 0; number < r.sampling.rounds.size(); ++number) {
    const Round& round = r.sampling.rounds[number];
    for (size_t i = 0; i < round.turns.size(); ++i)
      text +=
          fmt::format("{},{},{},{},{}\n", round.set + 1, number + 1, i + 1,
                      csv_field(r.sampling.names[round.arm_of(i)]), turn_columns(round.turns[i], round.other_load_pct));
  }
  return text;
}

}  // namespace trainopt
