#include "compare/output/ablation_report.h"

#include "base/units.h"
#include "compare/json_values.h"
#include "compare/output/comparison_json.h"
#include "compare/output/comparison_text.h"
#include "compare/output/remarks.h"
#include "compare/output/table.h"
#include "compare/shares.h"
#include "metrics/format.h"
#include "metrics/summary.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

const std::vector<std::string> kHeads{"switch",     "alone",      "in the stack", "share",  "with",
                                      "first step", "break-even", "memory",       "numbers"};

/// Whether the measurement was attempted and failed.
bool failed(const Gain& gain) {
  return !gain.ratio && !gain.reason.empty() && gain.reason != kNoTimeLeft && gain.reason != kStopped &&
         gain.reason != kRankLost;
}

/// "+12.1 % (+9.4 … +15.2)", with a "?" if undecided.
Table::Cell gain_cell(const Gain& gain) {
  if (!gain.ratio && !failed(gain)) return {gain.reason.empty() ? "–" : gain.reason, kDim};
  if (!gain.ratio) return {"failed", kRed};
  std::string text = with_range(*gain.ratio, gain.interval);
  if (gain.verdict == Verdict::inconclusive) text += gain.pairs.size() == 1 ? " one pair" : " ?";
  if (gain.verdict == Verdict::no_effect) text += " =";
  return {text, color_of(gain.verdict)};
}

Table::Cell numbers_cell(const std::optional<bool>& agree) {
  if (!agree) return {"–", kDim};
  return *agree ? Table::Cell{"agree"} : Table::Cell{"DIFFER", kRed};
}

/// "num_workers +4.1 %", with a "?" if the interval leaves the sign open.
std::string interaction_text(const Interaction& i) {
  return fmt::format("{} {}{}", i.with, percent_faster(i.ratio), i.interval && !i.interval->contains(1) ? "" : " ?");
}

Table::Row table_row(const SwitchRow& row) {
  if (!row.no_effect.empty()) return {{row.name}, {"no effect here", kDim}};
  const auto optional = [](const auto& value, auto show) {
    return value ? Table::Cell{show(*value)} : Table::Cell{"–", kDim};
  };
  return {{row.name},
          gain_cell(row.alone),
          gain_cell(row.in_stack),
          optional(row.share, [](const Share& share) { return with_range(share.ratio, share.interval); }),
          optional(row.interaction, interaction_text),
          optional(row.one_off_s, [](double seconds) { return fmt::format("{:+.1f} s", seconds); }),
          optional(row.break_even_step, [](int64_t step) { return fmt::format("step {}", step); }),
          optional(
              row.memory_mib,
              [](double mib) { return fmt::format("{}{}", mib < 0 ? "-" : "+", human_bytes(std::abs(mib) * 0x1p20)); }),
          numbers_cell(row.numbers_agree)};
}

/// `share`: for the column of the shares.
Table::Row summary_row(const char* name, Table::Cell gain, Table::Cell share, Table::Cell numbers) {
  return {{name}, std::move(gain), {""}, std::move(share), {""}, {""}, {""}, {""}, std::move(numbers)};
}

/// Switches in descending order of their shares; those without a share last.
Table table_of(const Ablation& a) {
  std::vector<const SwitchRow*> order;
  for (const auto& row : a.switches) order.push_back(&row);
  const auto size = [](const SwitchRow* row) { return row->share ? row->share->ratio : 0; };
  std::stable_sort(order.begin(), order.end(),
                   [&](const SwitchRow* x, const SwitchRow* y) { return size(x) > size(y); });
  Table table(kHeads, 1);
  for (const SwitchRow* row : order) table.add(table_row(*row));
  if (a.rest) table.add(summary_row("the rest", {""}, {with_range(a.rest->ratio, a.rest->interval)}, {""}));
  const Table::Cell all = a.total.ratio ? Table::Cell{percent_faster(*a.total.ratio)} : Table::Cell{"–"};
  table.add(summary_row("everything", gain_cell(a.total), all, numbers_cell(a.numbers_agree)));
  return table;
}

std::string_view ceiling_words(Ceiling ceiling) {
  switch (ceiling) {
    case Ceiling::data:
      return "even free loading";
    case Ceiling::optimizer:
      return "even free updates";
    case Ceiling::logging:
      return "even free logging";
    case Ceiling::communication:
      return "even free communication";
  }
  return "";
}

std::string ceiling_line(const CeilingRow& row) {
  if (!row.gain.ratio) return fmt::format("{}: not measured, {}", ceiling_words(row.without), row.gain.reason);
  const std::string gain = percent_faster(*row.gain.ratio, row.gain.interval);
  if (row.gain.verdict == Verdict::no_effect)
    return fmt::format("{} would change nothing: {}", ceiling_words(row.without), gain);
  return fmt::format("{} would give {}{}", ceiling_words(row.without), gain,
                     row.gain.verdict == Verdict::inconclusive ? ", undecided" : "");
}

bool is_undecided(const Gain& gain) { return gain.ratio && gain.verdict == Verdict::inconclusive; }

/// If cells are undecided: the variation between pairs and the budget that would decide them. Otherwise empty.
std::string undecided_text(const Ablation& a) {
  const bool any = is_undecided(a.total) || std::any_of(a.switches.begin(), a.switches.end(), [](const SwitchRow& row) {
                     return is_undecided(row.alone) || is_undecided(row.in_stack);
                   });
  if (!any || !a.pair_sd || !a.pairs_needed || !a.budget_needed_s) return {};
  return fmt::format(
      "some cells are undecided: pairs of processes have a standard deviation of {:.1f} % here; deciding about {:g} % "
      "in every cell takes about {} each{}",
      100 * *a.pair_sd, 100 * a.min_effect, counted(*a.pairs_needed, "pair"),
      with_budget(": ", a.command, *a.budget_needed_s));
}

/// Remarks below the table.
std::vector<std::string> remarks(const Ablation& a) {
  std::vector<std::string> all;
  for (const auto& row : a.switches) {
    if (!row.no_effect.empty()) all.push_back(fmt::format("{} has no effect here: {}", row.name, row.no_effect));
    if (failed(row.alone)) all.push_back(fmt::format("{} alone: {}", row.name, row.alone.reason));
    if (failed(row.in_stack)) all.push_back(fmt::format("{} in the stack: {}", row.name, row.in_stack.reason));
    if (!row.needs.empty())
      all.push_back(
          fmt::format("{0} cannot always be switched without {1}: where necessary, the latter was on in both arms, or "
                      "off in both",
                      row.name, fmt::join(row.needs, ", ")));
    if (!row.receipt.is_null() && row.no_effect.empty() && !row.receipt.at("effective"))
      all.push_back(
          fmt::format("{} was on and had no effect: {}", row.name, row.receipt.at("reason").get<std::string>()));
    if (row.numbers_agree && !*row.numbers_agree)
      all.push_back(fmt::format("{} changes the numbers: {}", row.name, row.numbers));
  }
  if (std::any_of(a.switches.begin(), a.switches.end(), [](const SwitchRow& row) {
        return row.alone.reason == kNoTimeLeft || row.in_stack.reason == kNoTimeLeft;
      }))
    all.push_back("the time budget ran out before everything was measured; raise --budget");
  if (const std::string words = undecided_text(a); !words.empty()) all.push_back(words);
  if (failed(a.total)) all.push_back(fmt::format("everything: {}", a.total.reason));
  if (a.numbers_agree && !*a.numbers_agree)
    all.push_back(fmt::format("everything together changes the numbers: {}", a.numbers));
  for (const auto& warning : a.warnings) all.push_back("warning: " + warning);
  return all;
}

std::string rate_text(const Ablation& a, double samples_per_s) {
  if (samples_per_s <= 0) return "not measured";
  const std::string rate = human_rate(samples_per_s) + " samples/s";
  if (!a.price_per_hour) return rate;
  return fmt::format("{} ({:.4g} per million samples)", rate,
                     price_of_a_million_samples(*a.price_per_hour, samples_per_s));
}

std::string head(const Ablation& a) {
  return fmt::format("{}: {} {}, {} {}; measured in {}", a.name, a.part ? "without what was named" : "everything off",
                     rate_text(a, a.plain_samples_per_s), a.part ? "with it" : "everything on",
                     rate_text(a, a.full_samples_per_s), human_seconds(a.seconds));
}

std::string legend(const Ablation& a) {
  return fmt::format(
      "alone: relative to the plain job; in the stack: relative to everything else; (low … high): simultaneous {:g} % "
      "intervals of the gains; ? undecided, = no effect; with: the strongest interaction with another switch; share: "
      "{}",
      100 * a.level, kShareRule);
}

}  // namespace

std::string ablation_text(const Ablation& a, const TextStyle& style) {
  std::string out = wrapped(head(a), style.columns) + "\n\n" + table_of(a).text(style) + "\n\n" +
                    wrapped(legend(a), style.columns) + "\n\n" + ceilings_text(a.ceilings);
  for (const auto& remark : remarks(a)) out += wrapped(remark, style.columns) + "\n";
  return out;
}

std::string ablation_markdown(const Ablation& a) {
  std::string out = head(a) + "\n\n" + table_of(a).markdown() + "\n\n" + legend(a) + ".\n\n";
  for (const auto& row : a.ceilings) out += fmt::format("- {}\n", ceiling_line(row));
  for (const auto& remark : remarks(a)) out += fmt::format("- {}\n", remark);
  return out;
}

std::string ablation_csv(const Ablation& a) {
  std::string out =
      "switch,requested,alone,alone_low,alone_high,in_stack,in_stack_low,in_stack_high,share,share_low,share_high,"
      "interaction_with,"
      "interaction,one_off_s,break_even_step,memory_mib,numbers_agree\n";
  const auto number = [](const auto& value) {
    return value ? fmt::format("{:.6g}", static_cast<double>(*value)) : std::string();
  };
  const auto bounds = [](const std::optional<Interval>& interval) {
    return interval ? fmt::format("{:.6g},{:.6g}", interval->low, interval->high) : std::string(",");
  };
  for (const auto& row : a.switches)
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", csv_field(row.name), csv_field(row.requested),
                       number(row.alone.ratio), bounds(row.alone.interval), number(row.in_stack.ratio),
                       bounds(row.in_stack.interval), row.share ? fmt::format("{:.6g}", row.share->ratio) : "",
                       bounds(row.share ? row.share->interval : std::nullopt),
                       row.interaction ? csv_field(row.interaction->with) : "",
                       row.interaction ? fmt::format("{:.6g}", row.interaction->ratio) : "", number(row.one_off_s),
                       number(row.break_even_step), number(row.memory_mib),
                       row.numbers_agree ? (*row.numbers_agree ? "true" : "false") : "");
  return out;
}

std::string ceilings_text(const std::vector<CeilingRow>& ceilings) {
  std::string out;
  for (const auto& row : ceilings) out += ceiling_line(row) + "\n";
  return out;
}

namespace {

Json gain_json(const Gain& gain) {
  return {{"ratio", or_null(gain.ratio)},
          {"interval", or_null(gain.interval)},
          {"verdict", gain.ratio ? Json(text(gain.verdict)) : Json()},
          {"blocks", gain.blocks},
          {"pairs", gain.pairs.size()},
          {"reason", gain.reason}};
}

Json interaction_json(const Interaction& interaction) {
  return {{"with", interaction.with}, {"ratio", interaction.ratio}, {"interval", or_null(interaction.interval)}};
}

Json share_json(const std::optional<Share>& share) {
  return share ? Json{{"ratio", share->ratio}, {"interval", or_null(share->interval)}} : Json();
}

Json switch_json(const SwitchRow& row) {
  return {{"name", row.name},
          {"requested", row.requested},
          {"no_effect", row.no_effect},
          {"needs", row.needs},
          {"alone", gain_json(row.alone)},
          {"in_stack", gain_json(row.in_stack)},
          {"interaction", row.interaction ? interaction_json(*row.interaction) : Json()},
          {"share", share_json(row.share)},
          {"one_off_s", or_null(row.one_off_s)},
          {"break_even_step", or_null(row.break_even_step)},
          {"memory_mib", or_null(row.memory_mib)},
          {"numbers_agree", or_null(row.numbers_agree)},
          {"numbers", row.numbers},
          {"receipt", row.receipt}};
}

}  // namespace

Json to_json(const Ablation& a) {
  Json json = {{"schema_version", 2},
               {"name", a.name},
               {"total", gain_json(a.total)},
               {"numbers_agree", or_null(a.numbers_agree)},
               {"numbers", a.numbers},
               {"level", a.level},
               {"min_effect", a.min_effect},
               {"seconds", a.seconds},
               {"plain_samples_per_s", a.plain_samples_per_s},
               {"full_samples_per_s", a.full_samples_per_s},
               {"price_per_hour", or_null(a.price_per_hour)},
               {"share_rule", kShareRule},
               {"rest", share_json(a.rest)},
               {"pair_sd_pct", a.pair_sd ? Json(100 * *a.pair_sd) : Json()},
               {"pairs_needed", or_null(a.pairs_needed)},
               {"budget_needed_s", or_null(a.budget_needed_s)}};
  json["switches"] = Json::array();
  for (const auto& row : a.switches) json["switches"].push_back(switch_json(row));
  json["ceilings"] = ceilings_json(a.ceilings);
  json["pairs"] = Json::array();
  for (const auto& pair : a.pairs) {
    Json entry = {{"switches", {pair.one, pair.other}}};
    entry.update(gain_json(pair.gain));
    json["pairs"].push_back(std::move(entry));
  }
  json["warnings"] = a.warnings;
  return json;
}

Json ceilings_json(const std::vector<CeilingRow>& ceilings) {
  Json json = Json::array();
  for (const auto& row : ceilings) {
    Json entry = {{"without", word_of(row.without)}, {"meaning", meaning(row.without)}};
    entry.update(gain_json(row.gain));
    json.push_back(std::move(entry));
  }
  return json;
}

}  // namespace trainopt
