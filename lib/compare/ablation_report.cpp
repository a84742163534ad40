#include "compare/ablation_report.h"

#include "base/units.h"
#include "compare/comparison_json.h"
#include "compare/comparison_text.h"
#include "compare/json_values.h"
#include "metrics/format.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

/// A cell of the table: what it says and in which colour (empty: none).
struct TableCell {
  std::string text;
  std::string_view color = {};
};
using TableRow = std::vector<TableCell>;

constexpr std::string_view kRed = "31", kGreen = "32", kDim = "2";

const std::vector<std::string> kHeads{"switch",     "alone",      "in the stack", "share",  "with",
                                      "first step", "paid after", "memory",       "numbers"};

/// Code points, which is what the characters used here take on a terminal.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string_view color_of(Verdict verdict) {
  if (verdict == Verdict::pays) return kGreen;
  return verdict == Verdict::costs ? kRed : std::string_view{};
}

/// Measured, and did not work.
bool failed(const Gain& gain) {
  return !gain.ratio && !gain.reason.empty() && gain.reason != kNoTimeLeft && gain.reason != kStopped;
}

/// "+12.1 % ±0.8", the larger side of the interval; with a "?" where it is undecided.
TableCell gain_cell(const Gain& gain) {
  if (!gain.ratio && !failed(gain)) return {gain.reason.empty() ? "–" : gain.reason, kDim};
  if (!gain.ratio) return {"failed", kRed};
  std::string text = percent_faster(*gain.ratio);
  if (gain.interval)
    text +=
        fmt::format(" ±{:.1f}", 100 * std::max(gain.interval->high - *gain.ratio, *gain.ratio - gain.interval->low));
  if (gain.verdict == Verdict::inconclusive) text += " ?";
  return {text, color_of(gain.verdict)};
}

TableCell numbers_cell(const std::optional<bool>& agree) {
  if (!agree) return {"–", kDim};
  return *agree ? TableCell{"agree"} : TableCell{"DIFFER", kRed};
}

/// "num_workers +4.1 %", with a "?" where the interval leaves the sign open.
std::string interaction_text(const Interaction& i) {
  return fmt::format("{} {}{}", i.with, percent_faster(i.ratio), i.interval && !i.interval->contains(1) ? "" : " ?");
}

TableRow table_row(const SwitchRow& row) {
  if (!row.no_effect.empty()) return {{row.name}, {"no effect here", kDim}, {""}, {""}, {""}, {""}, {""}, {""}, {""}};
  const auto optional = [](const auto& value, auto show) {
    return value ? TableCell{show(*value)} : TableCell{"–", kDim};
  };
  return {{row.name},
          gain_cell(row.alone),
          gain_cell(row.in_stack),
          optional(row.share, [](double share) { return percent_faster(share); }),
          optional(row.interaction, interaction_text),
          optional(row.one_off_s, [](double seconds) { return fmt::format("{:+.1f} s", seconds); }),
          optional(row.break_even_step, [](int64_t step) { return fmt::format("step {}", step); }),
          optional(
              row.memory_mib,
              [](double mib) { return fmt::format("{}{}", mib < 0 ? "-" : "+", human_bytes(std::abs(mib) * 0x1p20)); }),
          numbers_cell(row.numbers_agree)};
}

TableRow total_row(const Ablation& a) {
  return {{"everything"},
          gain_cell(a.total),
          {""},
          a.total.ratio ? TableCell{percent_faster(*a.total.ratio)} : TableCell{"–"},
          {""},
          {""},
          {""},
          {""},
          numbers_cell(a.numbers_agree)};
}

std::vector<TableRow> table_rows(const Ablation& a) {
  std::vector<const SwitchRow*> order;
  for (const auto& row : a.switches) order.push_back(&row);
  std::stable_sort(order.begin(), order.end(), [](const SwitchRow* x, const SwitchRow* y) {
    return x->share.value_or(0) > y->share.value_or(0);
  });  // no share: last
  std::vector<TableRow> rows;
  for (const SwitchRow* row : order) rows.push_back(table_row(*row));
  rows.push_back(total_row(a));
  return rows;
}

std::string_view ceiling_words(Ceiling ceiling) {
  switch (ceiling) {
    case Ceiling::data:
      return "even a perfect loader";
    case Ceiling::optimizer:
      return "even an optimizer that takes no time";
    case Ceiling::logging:
      return "even no logging at all";
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

/// What the table has no room for.
std::vector<std::string> remarks(const Ablation& a) {
  std::vector<std::string> all;
  for (const auto& row : a.switches) {
    if (!row.no_effect.empty()) all.push_back(fmt::format("{} has no effect here: {}", row.name, row.no_effect));
    if (failed(row.alone)) all.push_back(fmt::format("{} alone: {}", row.name, row.alone.reason));
    if (failed(row.in_stack)) all.push_back(fmt::format("{} in the stack: {}", row.name, row.in_stack.reason));
    if (!row.needs.empty())
      all.push_back(fmt::format("{} goes with {}: alone it was measured over it, and they were left out together",
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
    all.push_back("the budget of time ended before everything was measured: give more with --budget");
  if (failed(a.total)) all.push_back(fmt::format("everything: {}", a.total.reason));
  if (a.numbers_agree && !*a.numbers_agree)
    all.push_back(fmt::format("everything together changes the numbers: {}", a.numbers));
  if (a.noise)
    all.push_back(fmt::format("noise floor: the plain job against itself is {}; one block scatters by {:.1f} %",
                              percent_faster(a.noise->ratio, a.noise->interval), a.noise->block_sd_pct));
  for (const auto& warning : a.warnings) all.push_back("warning: " + warning);
  return all;
}

std::string head(const Ablation& a) {
  return fmt::format("{}: everything off {} samples/s, everything on {} samples/s; measured in {}", a.name,
                     human_rate(a.plain_samples_per_s), human_rate(a.full_samples_per_s), human_seconds(a.seconds));
}

std::string legend(const Ablation& a) {
  return fmt::format(
      "alone: over the plain job; in the stack: over everything else; ± is the {:g} % interval of that one cell, ? "
      "undecided; with: the strongest interaction with another switch.\nshare: {}",
      100 * a.level, kShareRule);
}

Json gain_json(const Gain& gain) {
  return {{"ratio", or_null(gain.ratio)},
          {"interval", or_null(gain.interval)},
          {"verdict", gain.ratio ? Json(text(gain.verdict)) : Json()},
          {"blocks", gain.blocks},
          {"reason", gain.reason}};
}

}  // namespace

std::string ablation_text(const Ablation& a, bool color) {
  const auto rows = table_rows(a);
  std::vector<size_t> widths;
  for (size_t column = 0; column < kHeads.size(); ++column) {
    widths.push_back(width(kHeads[column]));
    for (const auto& row : rows) widths.back() = std::max(widths.back(), width(row[column].text));
  }
  const auto padded = [&](const std::string& text, size_t column) {
    return text + std::string(widths[column] - width(text), ' ');
  };
  std::string out = head(a) + "\n\n";
  for (size_t column = 0; column < kHeads.size(); ++column)
    out += (column == 0 ? "  " : "   ") + padded(kHeads[column], column);
  for (const auto& row : rows) {
    out += "\n";
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string text = padded(row[column].text, column);
      out += (column == 0 ? "  " : "   ") +
             (color && !row[column].color.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", row[column].color, text) : text);
    }
    out.erase(out.find_last_not_of(' ') + 1);
  }
  out += "\n\n" + legend(a) + "\n\n" + ceilings_text(a.ceilings);
  for (const auto& remark : remarks(a)) out += remark + "\n";
  return out;
}

std::string ablation_markdown(const Ablation& a) {
  std::string out = head(a) + "\n\n|";
  for (const auto& name : kHeads) out += fmt::format(" {} |", name);
  out += "\n|";
  for (size_t column = 0; column < kHeads.size(); ++column) out += column == 0 ? "---|" : "--:|";
  for (const auto& row : table_rows(a)) {
    out += "\n|";
    for (const auto& cell : row) out += fmt::format(" {} |", cell.text);
  }
  out += "\n\n" + legend(a) + ".\n\n";
  for (const auto& row : a.ceilings) out += fmt::format("- {}\n", ceiling_line(row));
  for (const auto& remark : remarks(a)) out += fmt::format("- {}\n", remark);
  return out;
}

std::string ablation_csv(const Ablation& a) {
  std::string out =
      "switch,requested,alone,alone_low,alone_high,in_stack,in_stack_low,in_stack_high,share,interaction_with,"
      "interaction,one_off_s,break_even_step,memory_mib,numbers_agree\n";
  const auto number = [](const auto& value) {
    return value ? fmt::format("{:.6g}", static_cast<double>(*value)) : std::string();
  };
  const auto bounds = [](const Gain& gain) {
    return gain.interval ? fmt::format("{:.6g},{:.6g}", gain.interval->low, gain.interval->high) : std::string(",");
  };
  for (const auto& row : a.switches)
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{}\n", row.name, row.requested, number(row.alone.ratio),
                       bounds(row.alone), number(row.in_stack.ratio), bounds(row.in_stack), number(row.share),
                       row.interaction ? row.interaction->with : "",
                       row.interaction ? fmt::format("{:.6g}", row.interaction->ratio) : "", number(row.one_off_s),
                       number(row.break_even_step), number(row.memory_mib),
                       row.numbers_agree ? (*row.numbers_agree ? "true" : "false") : "");
  return out;
}

Json to_json(const Ablation& a) {
  Json json = {{"schema_version", 1},
               {"name", a.name},
               {"total", gain_json(a.total)},
               {"numbers_agree", or_null(a.numbers_agree)},
               {"numbers", a.numbers},
               {"level", a.level},
               {"min_effect", a.min_effect},
               {"seconds", a.seconds},
               {"plain_samples_per_s", a.plain_samples_per_s},
               {"full_samples_per_s", a.full_samples_per_s},
               {"share_rule", kShareRule},
               {"residue", a.residue}};
  json["switches"] = Json::array();
  for (const auto& row : a.switches)
    json["switches"].push_back({{"name", row.name},
                                {"requested", row.requested},
                                {"no_effect", row.no_effect},
                                {"needs", row.needs},
                                {"alone", gain_json(row.alone)},
                                {"in_stack", gain_json(row.in_stack)},
                                {"interaction", row.interaction ? Json{{"with", row.interaction->with},
                                                                       {"ratio", row.interaction->ratio},
                                                                       {"interval", or_null(row.interaction->interval)}}
                                                                : Json()},
                                {"share", or_null(row.share)},
                                {"one_off_s", or_null(row.one_off_s)},
                                {"break_even_step", or_null(row.break_even_step)},
                                {"memory_mib", or_null(row.memory_mib)},
                                {"numbers_agree", or_null(row.numbers_agree)},
                                {"numbers", row.numbers},
                                {"receipt", row.receipt}});
  json["ceilings"] = ceilings_json(a.ceilings);
  json["noise_floor"] = a.noise ? Json{{"ratio", a.noise->ratio},
                                       {"interval", or_null(a.noise->interval)},
                                       {"block_sd_pct", a.noise->block_sd_pct},
                                       {"blocks", a.noise->blocks}}
                                : Json();
  json["warnings"] = a.warnings;
  return json;
}

std::string ceilings_text(const std::vector<CeilingRow>& ceilings) {
  std::string out;
  for (const auto& row : ceilings) out += ceiling_line(row) + "\n";
  return out;
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
