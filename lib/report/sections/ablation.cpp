#include "report/figures.h"
#include "report/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainopt::report {
namespace {

std::vector<Figures> switches_of(const Figures& result) {
  std::vector<Figures> switches;
  for (size_t i = 0; i < shown_of(result.json("switches")); ++i)
    switches.push_back(result.of(fmt::format("switches.{}", i)));
  return switches;
}

bool has_no_effect(const Figures& one) {
  return one.json("no_effect").is_string() && !one.json("no_effect").get_ref<const std::string&>().empty();
}

/// The largest share first; what has none comes last, in the recipe's order.
std::vector<Figures> ranked(const Figures& result) {
  auto switches = switches_of(result);
  std::stable_sort(switches.begin(), switches.end(), [](const Figures& left, const Figures& right) {
    return left.value("share.ratio").value_or(0) > right.value("share.ratio").value_or(0);
  });
  return switches;
}

std::optional<std::pair<double, double>> interval_at(const Figures& figures, const std::string& path) {
  const auto low = figures.value(path + ".0"), high = figures.value(path + ".1");
  return low && high ? std::optional(std::pair(*low, *high)) : std::nullopt;
}

/// From everything off to everything on. Nothing if the total or a share is missing: the steps would not lead there.
Html waterfall(const Figures& result, const Place& place) {
  const auto plain = result.value("plain_samples_per_s");
  if (!plain || *plain <= 0 || !result.value("total.ratio") || !result.value("rest.ratio")) return {};
  Waterfall chart{.key = place.ids + "waterfall",
                  .title = "From everything off to everything on",
                  .unit = "samples/s",
                  .begin = *plain,
                  .begin_name = "everything off",
                  .end_name = "everything on, by these gains",
                  .rows = {}};
  const auto add = [&](const std::string& name, const Figures& share) {
    const auto ratio = share.value("ratio");
    if (ratio && *ratio > 0) chart.rows.push_back({name, *ratio, interval_at(share, "interval"), gain_text(*ratio)});
  };
  for (const Figures& one : ranked(result)) add(value_text(one.json("name")), one.of("share"));
  add("the rest", result.of("rest"));
  return draw(chart);
}

Html forest(const Figures& result, const Place& place, const char* key, const char* path, const char* title) {
  Forest chart{.key = place.ids + key,
               .title = title,
               .faster = "faster with the switch",
               .slower = "slower with the switch",
               .rows = {}};
  for (const Figures& one : ranked(result))
    if (auto row = forest_row(value_text(one.json("name")), one.json(path))) chart.rows.push_back(*row);
  return chart.rows.empty() ? Html() : draw(chart);
}

/// "--budget 113h" or "--budget 90s".
std::string budget_text(double seconds) {
  return seconds < 7200 ? fmt::format("--budget {:.0f}s", std::ceil(seconds))
                        : fmt::format("--budget {:.0f}h", std::ceil(seconds / 3600));
}

/// Whether the numbers agree, or why they were not compared.
Html numbers_of(const Figures& one) {
  if (one.json("numbers_agree").is_boolean())
    return one.worded("numbers_agree", one.json("numbers_agree").get<bool>() ? "yes" : "no");
  return one.json("numbers").is_string() ? one.text("numbers") : escape(kMissing);
}

Html table_of_switches(const Figures& result) {
  Table table{.caption = "Switches, the largest share first",
              .columns = {{"switch"},
                          {"share", true},
                          {"alone", true},
                          {"in the stack", true},
                          {"interacts with"},
                          {"pays after step", true},
                          {"memory", true},
                          {"numbers agree"}},
              .rows = {}};
  for (const Figures& one : ranked(result)) {
    if (has_no_effect(one)) continue;
    table.rows.push_back(
        {one.text("name"), one.json("share").is_object() ? gain_figures(one.of("share")) : escape(kMissing),
         gain_figures(one.of("alone")), gain_figures(one.of("in_stack")),
         one.json("interaction").is_object()
             ? one.text("interaction.with") + " " + one.number("interaction.ratio", gain_text)
             : escape(kMissing),
         one.number("break_even_step", count_text), one.number("memory_mib", plain_text), numbers_of(one)});
  }
  return table.rows.empty() ? Html() : draw(table);
}

/// What was observed of each switch, as a run's page shows it.
Html receipts(const Figures& result) {
  Html items;
  for (const Figures& one : switches_of(result))
    if (one.json("receipt").is_object())
      items += switch_item(one.of("receipt"), value_text(one.json("name")), "observed");
  return items.empty() ? Html() : element("ul", {{"class", "switches"}}, items);
}

Html ceilings(const Figures& result) {
  const Json& list = result.json("ceilings");
  if (list.empty()) return {};
  Table table{.caption = "Ceilings", .columns = {{"if this were free"}, {"gain", true}, {"how"}}, .rows = {}};
  for (size_t i = 0; i < shown_of(list); ++i) {
    const Figures one = result.of(fmt::format("ceilings.{}", i));
    table.rows.push_back({one.text("without"), gain_figures(one), one.text("meaning")});
  }
  return draw(table);
}

/// Which gain of a switch its chip and the advice are about: in the stack, or alone if that was not measured.
const char* judged_gain(const Figures& one) {
  return one.json("in_stack.verdict").is_string() && one.value("in_stack.ratio") ? "in_stack" : "alone";
}

/// The switches with this verdict.
std::string with_verdict(const Figures& result, Forest::Verdict verdict) {
  std::string names;
  for (const Figures& one : switches_of(result)) {
    const std::string gain = judged_gain(one);
    if (one.value(gain + ".ratio") && verdict_of(one.json(gain + ".verdict")) == verdict)
      names += (names.empty() ? "" : ", ") + value_text(one.json("name"));
  }
  return names;
}

std::string without_effect(const Figures& result) {
  std::string names;
  for (const Figures& one : switches_of(result))
    if (has_no_effect(one)) names += (names.empty() ? "" : ", ") + value_text(one.json("name"));
  return names;
}

Html advice(const Figures& result) {
  Html items;
  const auto add = [&](const char* what, const std::string& names) {
    if (!names.empty()) items += advice_item(what, escape(names), "");
  };
  add("Keep what pays", with_verdict(result, Forest::Verdict::faster));
  add("Turn off what costs", with_verdict(result, Forest::Verdict::slower));
  add("Leave out what makes no difference here", with_verdict(result, Forest::Verdict::none));
  add("Measure longer what is not decided", with_verdict(result, Forest::Verdict::undecided));
  add("Expect nothing of these on this machine", without_effect(result));
  if (const auto seconds = result.value("budget_needed_s"); seconds && !items.empty())
    items += advice_item("Decide every gain", "takes " + result.number("budget_needed_s", seconds_text),
                         budget_text(*seconds));
  return items.empty() ? Html() : element("h2", "What to try") + element("ol", {{"class", "advice"}}, items);
}

/// The switch's verdict, and the share that the table states; without one, the gain that was measured.
Html chip_text(const Figures& one) {
  const std::string gain = judged_gain(one);
  if (!one.value(gain + ".ratio")) return gain_figures(one.of(gain));
  const Html figures = one.json("share").is_object()
                           ? "share " + gain_figures(one.of("share"))
                           : (gain == "alone" ? "alone " : "in the stack ") + gain_figures(one.of(gain));
  return verdict_chip(one.of(gain)) + " " + figures;
}

/// The switches by their share, as chips.
Html chips(const Figures& result) {
  Html items;
  for (const Figures& one : ranked(result)) {
    const bool idle = has_no_effect(one);
    const Html seen = idle ? "no effect: " + one.text("no_effect") : chip_text(one);
    items += element(
        "li", {{"class", idle ? "switch is-idle" : "switch is-off"}},
        element("span", {{"class", "name"}}, one.text("name")) + " " + element("span", {{"class", "seen"}}, seen));
  }
  return items.empty() ? Html()
                       : element("h2", "Which switches did what") + element("ul", {{"class", "switches"}}, items);
}

Html largest_ceiling(const Figures& result) {
  std::optional<Figures> largest;
  for (size_t i = 0; i < shown_of(result.json("ceilings")); ++i) {
    const Figures one = result.of(fmt::format("ceilings.{}", i));
    if (one.value("ratio") && (!largest || *one.value("ratio") > *largest->value("ratio"))) largest = one;
  }
  if (!largest) return {};
  return element("h2", "What limits it") +
         element("div", {{"class", "limits"}},
                 element("p", element("strong", "If this were free: " + largest->text("without")) + " " +
                                  gain_figures(*largest) + " (" + largest->text("meaning") + ")"));
}

}  // namespace

Html ablation_headline(const ResultFolder& folder, const Place& place) {
  const Figures result(folder.result, place.keys);
  const Html interval = result.interval("total.interval", gain_text);
  const Html figures = key_figure("Gain of everything", result.number("total.ratio", gain_text), "",
                                  interval.empty() ? Html("no interval") : interval) +
                       key_figure("Everything off", result.number("plain_samples_per_s", rate_text), "samples/s", {}) +
                       key_figure("Everything on", result.number("full_samples_per_s", rate_text), "samples/s", {});
  return element("p", "Everything on, against everything off: " + verdict_chip(result.of("total"))) +
         element("div", {{"class", "key-figures"}}, figures) + largest_ceiling(result) + chips(result) +
         advice(result) + warnings(at(folder.result, "warnings"));
}

std::vector<Section> ablation_sections(const ResultFolder& folder, const Place& place) {
  const Figures result(folder.result, place.keys);
  std::vector<Section> sections;
  const auto add = [&](const char* id, const char* title, Html content) {
    if (!content.empty()) sections.push_back({place.ids + id, place.heading + title, std::move(content)});
  };
  std::string rule = result.json("share_rule").is_string() ? value_text(result.json("share_rule")) : std::string();
  if (!rule.empty()) rule = "The share: " + rule + ".";
  add("gains-section", "What each switch gains",
      cards(waterfall(result, place) +
            forest(result, place, "alone", "alone", "Each switch alone, against everything off") +
            forest(result, place, "in-stack", "in_stack", "Each switch in the stack, against everything else on")) +
          (rule.empty() ? Html() : element("p", {{"class", "note"}}, escape(rule))) + table_of_switches(result));
  add("receipts-section", "What was observed of each switch", receipts(result));
  add("ceilings-section", "Ceilings", ceilings(result));
  add("measurement-section", "Measurement",
      fact_table("Measurement", {{"the numbers of everything on and everything off agree", numbers_of(result)},
                                 {"confidence level, of all intervals together", result.number("level", plain_text)},
                                 {"smallest effect that counts", result.number("min_effect", plain_text)},
                                 {"time", result.number("seconds", seconds_text)},
                                 {"standard deviation of a pair", result.known("pair_sd_pct", percent_text)}}));
  return sections;
}

}  // namespace trainopt::report
