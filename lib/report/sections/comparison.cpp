#include "report/figures.h"
#include "report/recipe_differences.h"
#include "report/sections.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt::report {
namespace {

Html facts_of_measurement(const Figures& result) {
  return fact_table("Measurement", {{"confidence level", result.number("level", plain_text)},
                                    {"smallest effect that counts", result.number("min_effect", plain_text)},
                                    {"blocks", result.known("blocks", count_text)},
                                    {"pairs of processes", result.known("pairs", count_text)},
                                    {"rounds", result.known("rounds", count_text)},
                                    {"ended by", result.text("ended")},
                                    {"time", result.number("seconds", seconds_text)},
                                    {"not seen", result.known_text("unseen")},
                                    {"noise: A against itself", result.known("noise_floor.ratio", gain_text)}});
}

Html one_forest(const ResultFolder& folder, const Place& place) {
  Forest chart{.key = place.ids + "ratio",
               .title = "Throughput of B against A",
               .faster = "B is faster",
               .slower = "B is slower",
               .rows = {}};
  if (auto row = forest_row("B against A", folder.result)) chart.rows.push_back(*row);
  if (auto row = forest_row("noise: A against itself", at(folder.result, "noise_floor"))) chart.rows.push_back(*row);
  return chart.rows.empty() ? Html() : draw(chart);
}

/// Each pair; with many arms the first arm against the others comes first.
Html forest_of_pairs(const ResultFolder& folder, const Place& place) {
  Forest chart{.key = place.ids + "pairs",
               .title = "Throughput of each pair",
               .faster = "faster",
               .slower = "slower",
               .rows = {}};
  for (const Json& pair : at(folder.result, "pairs"))
    if (chart.rows.size() < kMostItems)
      if (auto row =
              forest_row(fmt::format("{} against {}", value_text(at(pair, "b")), value_text(at(pair, "a"))), pair))
        chart.rows.push_back(*row);
  return chart.rows.empty() ? Html() : draw(chart);
}

Html switches_of_arms(const Figures& result) {
  Html all;
  const auto arms = arms_of(result);
  for (size_t i = 0; i < arms.size(); ++i)
    if (Html list = switch_list(arms[i].of("receipts")); !list.empty())
      all += element("div", element("h3", label_of_arm(result, arms[i], i)) + list);
  return all.empty() ? Html() : element("div", {{"class", "side-by-side"}}, all);
}

/// Several arms differ in one key, which their headline names.
Html recipe_differences_of(const Json& result) {
  const Json& arms = at(result, "arms");
  if (!at(arms, "a.recipe").is_object() || !at(arms, "b.recipe").is_object()) return {};
  return draw(recipe_differences(at(arms, "a.recipe"), at(arms, "b.recipe")), "A", "B");
}

/// The numerical agreement of several arms, each beside the first.
Html numbers_of_arms(const Figures& result) {
  Html all;
  if (!result.json("arms").is_array()) return all;
  for (const auto& arm : arms_of(result)) {
    if (Html facts = numbers_facts(arm.of("numerics")); !facts.empty())
      all += element("h3", arm.text("name") + " beside " + result.text("arms.0.name")) + facts;
  }
  return all;
}

/// What changed between a stored result and now (compare --against).
Html differences_since(const Figures& result) {
  const Json& list = result.json("differences");
  if (list.empty()) return {};
  Table table{.caption = "Differences", .columns = {{"what"}, {"then"}, {"now"}}, .rows = {}};
  for (size_t i = 0; i < shown_of(list); ++i) {
    const Figures one = result.of(fmt::format("differences.{}", i));
    table.rows.push_back({one.text("what"), one.text("then"), one.text("now")});
  }
  return draw(table);
}

/// What ended the measurement early, and what a reader should know before trusting it.
Html problems(const Figures& result) {
  Html all;
  for (const char* path : {"failure", "no_verdict"})
    if (result.json(path).is_string()) all += element("p", {{"class", "warning"}}, result.text(path));
  return all + warnings(result.json("warnings"));
}

Html comparison_headline(const Figures& result) {
  const Html interval = result.interval("interval", gain_text);
  Html figures = key_figure("B against A", result.number("ratio", gain_text), "",
                            interval.empty() ? Html("no interval") : interval);
  for (const char* arm : {"a", "b"}) {
    const Figures one = result.of(std::string("arms.") + arm);
    figures +=
        key_figure(arm[0] == 'a' ? "A" : "B", one.number("samples_per_s", rate_text), "samples/s", one.text("name"));
  }
  if (const Json& agree = result.json("numerics.agree"); agree.is_boolean())
    figures += key_figure("Numbers", result.worded("numerics.agree", agree.get<bool>() ? "agree" : "differ"), "", {});
  return element("p", "What B changes: " + verdict_chip(result)) + element("div", {{"class", "key-figures"}}, figures) +
         problems(result);
}

Html several_arms_headline(const Figures& result) {
  Html figures;
  for (const auto& arm : arms_of(result)) {
    figures += key_figure(value_text(result.json("each.key")) + " = " + value_text(arm.json("name")),
                          arm.number("samples_per_s", rate_text), "samples/s", {});
  }
  return element("p", element("strong", result.text("fastest.text"))) +
         element("div", {{"class", "key-figures"}}, figures) + problems(result);
}

/// Where an arm's time goes, in the words of a run's page.
Html limits_of_arms(const Figures& result) {
  Html items;
  const auto arms = arms_of(result);
  for (size_t i = 0; i < arms.size(); ++i) {
    const Figures& arm = arms[i];
    const double wait = arm.value("data_wait_pct").value_or(0);
    const auto sum = [&](const char* phase) { return arm.value(fmt::format("phases.{}_ms", phase)).value_or(0); };
    const double forward = sum("forward"), backward = sum("backward"), update = sum("update");
    const double all = forward + backward + update;
    if (all <= 0) continue;
    const char* sentence = wait >= 50                    ? "waits for data most of the time"
                           : update > forward + backward ? "is limited by the update of the weights"
                                                         : "is limited by the forward and backward passes";
    items += element("p", element("strong", label_of_arm(result, arm, i)) + " " + sentence + ": waiting for data " +
                              arm.number("data_wait_pct", percent_text) +
                              escape(fmt::format("; of the rest, forward {}, backward {}, update {}",
                                                 percent_text(100 * forward / all), percent_text(100 * backward / all),
                                                 percent_text(100 * update / all))));
  }
  return items.empty() ? Html() : element("h2", "What limits it") + element("div", {{"class", "limits"}}, items);
}

Html try_next(const Json& result) {
  const Json& verdict = at(result, "verdict");
  std::string what = verdict == "pays"        ? "Keep what B changes: it pays here."
                     : verdict == "costs"     ? "Leave it as in A: what B changes costs here."
                     : verdict == "no effect" ? "Choose the simpler of the two: the difference is too small to matter."
                     : verdict == "inconclusive" ? "Measure longer, or on a quieter machine: this is not decided yet."
                                                 : "";
  if (const Json& fastest = at(result, "fastest.arms"); fastest.is_array() && !fastest.empty())
    what = fastest.size() == 1 ? fmt::format("Use {} = {}.", value_text(at(result, "each.key")), value_text(fastest[0]))
                               : "Measure longer, or choose by other needs: the fastest are not told apart.";
  if (what.empty() || at(result, "failure").is_string()) return {};
  Html items = advice_item(escape(what), {}, "");
  for (const Json& each : at(result, "to_decide"))
    items += advice_item(escape(value_text(at(each, "what"))), {},
                         at(each, "command").is_string() ? value_text(at(each, "command")) : "");
  return element("h2", "What to try") + element("ol", {{"class", "advice"}}, items);
}

/// The switches that one arm has, or that had an effect in it, and another not.
Html switches_that_differ(const Figures& result) {
  const auto arms = arms_of(result);
  const auto state = [](const Figures& arm, const std::string& name) {
    const Json& receipts = arm.json("receipts");
    const auto found = receipts.is_object() ? receipts.find(name) : receipts.end();
    return found == receipts.end() ? std::string()
                                   : value_text(at(*found, "requested")) + value_text(at(*found, "effective"));
  };
  Html all;
  for (size_t i = 0; i < arms.size(); ++i) {
    const Figures& arm = arms[i];
    Html items;
    for (const auto& [name, receipt] : arm.json("receipts").items())
      if (std::any_of(arms.begin(), arms.end(),
                      [&, &name = name](const Figures& other) { return state(other, name) != state(arm, name); }))
        items += switch_item(Figures(receipt, arm.prefix() + "receipts." + name + "."), name, "observed");
    if (!items.empty())
      all += element("h3", label_of_arm(result, arm, i)) + element("ul", {{"class", "switches"}}, items);
  }
  return all.empty() ? Html() : element("h2", "Which switches did what") + all;
}

Html disagreements(const Figures& numerics) {
  Html items;
  for (size_t i = 0; i < shown_of(numerics.json("disagreements")); ++i)
    items += element("li", numerics.text(fmt::format("disagreements.{}", i)));
  return items.empty() ? Html() : element("div", {{"class", "warning"}}, "The numbers differ:" + element("ul", items));
}

}  // namespace

Html headline(const ResultFolder& folder, const Place& place) {
  if (folder.kind == ResultKind::ablation) return ablation_headline(folder, place) + notes(folder.notes);
  const Figures result(folder.result, place.keys);
  if (folder.kind == ResultKind::rate_range) return rate_range_headline(result) + notes(folder.notes);
  return (folder.kind == ResultKind::several_arms ? several_arms_headline(result) : comparison_headline(result)) +
         limits_of_arms(result) + switches_that_differ(result) + try_next(folder.result) + notes(folder.notes);
}

std::vector<Section> result_sections(const ResultFolder& folder, const Place& place) {
  const Figures result(folder.result, place.keys);
  std::vector<Section> sections;
  const auto add = [&](const char* id, const char* title, Html content) {
    if (!content.empty()) sections.push_back({place.ids + id, place.heading + title, std::move(content)});
  };
  if (folder.kind == ResultKind::ablation) {
    sections = ablation_sections(folder, place);
  } else if (folder.kind == ResultKind::rate_range) {
    add("range-section", "Loss at each learning rate", rate_range_chart(result, place));
  } else {
    add("speed-section", "Speed",
        cards((folder.kind == ResultKind::several_arms ? forest_of_pairs(folder, place) : one_forest(folder, place)) +
              turns_chart(folder.result, place)) +
            arms_table(result));
    add("numbers-section", "Numbers beside speed",
        disagreements(result.of("numerics")) + numbers_facts(result.of("numerics")) + numbers_of_arms(result));
    add("differences-section", "What differs between the recipes", recipe_differences_of(folder.result));
    add("since-section", "What differs from the stored result", differences_since(result));
    add("receipts-section", "What each switch did", switches_of_arms(result));
    add("measurement-section", "Measurement", facts_of_measurement(result));
  }
  add("environment-section", "Environment",
      environment_facts(Figures(folder.environment, place.keys + "environment.")));
  return sections;
}

}  // namespace trainopt::report
