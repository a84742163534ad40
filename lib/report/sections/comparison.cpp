#include "report/environment.h"
#include "report/figures.h"
#include "report/headlines.h"
#include "report/recipe_differences.h"
#include "report/result_sections.h"
#include "report/switches.h"

#include <fmt/format.h>

namespace trainopt::report {
namespace {

Html facts_of_measurement(const Figures& result) {
  return fact_table(
      "Measurement",
      {{"confidence level", result.number("level", plain_text)},
       {"smallest effect that counts", result.number("min_effect", plain_text)},
       {"blocks", result.json("blocks").is_null() ? "" : result.number("blocks", count_text)},
       {"pairs of processes", result.json("pairs").is_number() ? result.number("pairs", count_text) : Html()},
       {"rounds", result.json("rounds").is_null() ? "" : result.number("rounds", count_text)},
       {"ended by", result.text("ended")},
       {"time", result.number("seconds", seconds_text)},
       {"not seen", result.json("unseen").is_null() ? "" : result.text("unseen")},
       {"noise: A against itself",
        result.value("noise_floor.ratio") ? result.number("noise_floor.ratio", gain_text) : Html()}});
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
               .title = "Throughput of each arm against the one named second",
               .faster = "faster",
               .slower = "slower",
               .rows = {}};
  for (const Json& pair : at(folder.result, "pairs"))
    if (auto row = forest_row(fmt::format("{} against {}", value_text(at(pair, "b")), value_text(at(pair, "a"))), pair))
      chart.rows.push_back(*row);
  return chart.rows.empty() ? Html() : draw(chart);
}

Html switches_of_arms(const Figures& result) {
  Html all;
  const Json& arms = result.json("arms");
  const auto one = [&](const std::string& path) {
    const Figures arm = result.of("arms." + path);
    if (Html list = switch_list(arm.of("receipts")); !list.empty())
      all += element("div", element("h3", escape(value_text(arm.json("name")))) + list);
  };
  if (arms.is_array())
    for (size_t i = 0; i < arms.size(); ++i) one(fmt::format("{}", i));
  else
    for (const auto& [key, arm] : arms.items()) one(key);
  return all.empty() ? Html() : element("div", {{"class", "side-by-side"}}, all);
}

Html recipe_differences_of(const Json& result) {
  const Json& arms = at(result, "arms");
  if (arms.is_object()) return draw(recipe_differences(at(arms, "a.recipe"), at(arms, "b.recipe")), "A", "B");
  Html all;
  for (size_t i = 1; i < arms.size(); ++i)
    all += draw(recipe_differences(at(arms, "0.recipe"), at(arms[i], "recipe")), value_text(at(arms, "0.name")),
                value_text(at(arms[i], "name")));
  return all;
}

/// Of the arms of a rotation, each beside the first.
Html numbers_of_arms(const Figures& result) {
  Html all;
  if (!result.json("arms").is_array()) return all;
  for (size_t i = 1; i < result.json("arms").size(); ++i) {
    const Figures arm = result.of(fmt::format("arms.{}", i));
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
  for (size_t i = 0; i < list.size(); ++i) {
    const Figures one = result.of(fmt::format("differences.{}", i));
    table.rows.push_back({one.text("what"), one.text("then"), one.text("now")});
  }
  return draw(table);
}

Html comparison_headline(const ResultFolder& folder, const Figures& result) {
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
  return element("p", verdict_chip(result)) + element("div", {{"class", "key-figures"}}, figures) +
         warnings(at(folder.result, "warnings"));
}

Html rotation_headline(const ResultFolder& folder, const Figures& result) {
  Html figures;
  for (size_t i = 0; i < result.json("arms").size(); ++i) {
    const Figures arm = result.of(fmt::format("arms.{}", i));
    figures += key_figure(value_text(arm.json("name")), arm.number("samples_per_s", rate_text), "samples/s", {});
  }
  return element("p", element("strong", result.text("fastest.text"))) +
         element("div", {{"class", "key-figures"}}, figures) + warnings(at(folder.result, "warnings"));
}

Html try_next(const ResultFolder& folder) {
  const Json& verdict = at(folder.result, "verdict");
  const char* what = verdict == "pays"        ? "Keep what B changes: it pays here."
                     : verdict == "costs"     ? "Leave it as in A: what B changes costs here."
                     : verdict == "no effect" ? "Choose the simpler of the two: the difference is too small to matter."
                     : verdict == "inconclusive" ? "Measure longer, or on a quieter machine: this is not decided yet."
                                                 : nullptr;
  if (!what) return {};
  return element("h2", "What to try") +
         element("ol", {{"class", "advice"}}, advice_item(what, {}, "trainopt compare --show " + folder.path.string()));
}

/// What differs between the receipts of the first arm and the others.
Html switches_that_differ(const Figures& result) {
  const Json& arms = result.json("arms");
  const Json& first = arms.is_array() ? at(arms, "0.receipts") : at(arms, "a.receipts");
  Html all;
  const auto one = [&](const std::string& path) {
    const Figures arm = result.of("arms." + path);
    Json differing = Json::object();
    for (const auto& [name, receipt] : arm.json("receipts").items())
      if (at(first, name) != receipt) differing[name] = receipt;
    if (differing.empty()) return;
    all += element("h3", arm.text("name")) + switch_list(Figures(differing, arm.prefix() + "receipts."));
  };
  if (arms.is_array())
    for (size_t i = 1; i < arms.size(); ++i) one(fmt::format("{}", i));
  else
    one("b");
  return all.empty() ? Html() : element("h2", "Which switches did what") + all;
}

}  // namespace

Html headline(const ResultFolder& folder, const Place& place) {
  const Figures result(folder.result, place.keys);
  switch (folder.kind) {
    case ResultKind::ablation:
      return ablation_headline(folder, place) + notes(folder.notes);
    case ResultKind::rotation:
      return rotation_headline(folder, result) + switches_that_differ(result) + notes(folder.notes);
    case ResultKind::comparison:
    case ResultKind::against:
      break;
  }
  return comparison_headline(folder, result) + switches_that_differ(result) + try_next(folder) + notes(folder.notes);
}

std::vector<Section> result_sections(const ResultFolder& folder, const Place& place) {
  const Figures result(folder.result, place.keys);
  std::vector<Section> sections;
  const auto add = [&](const char* id, const char* title, Html content) {
    if (!content.empty()) sections.push_back({place.ids + id, place.heading + title, std::move(content)});
  };
  if (folder.kind == ResultKind::ablation) {
    sections = ablation_sections(folder, place);
  } else {
    add("speed-section", "Speed",
        cards((folder.kind == ResultKind::rotation ? forest_of_pairs(folder, place) : one_forest(folder, place)) +
              turns_chart(folder.result, place)) +
            arms_table(result));
    add("numbers-section", "Numbers beside speed", numbers_facts(result.of("numerics")) + numbers_of_arms(result));
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
