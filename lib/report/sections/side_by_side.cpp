#include "report/sections.h"

#include "report/diagnosis.h"
#include "report/figures.h"
#include "report/recipe_differences.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt::report {
namespace {

/// More lines than this cannot be told apart.
constexpr size_t kMostLines = 8;

Html bars_of_throughput(const std::vector<NamedRun>& runs) {
  Bars chart{.key = "runs", .title = "Throughput", .unit = "samples/s", .rows = {}};
  for (const NamedRun& one : runs)
    if (const Json& rate = at(one.run->summary, "samples_per_s"); rate.is_number())
      chart.rows.push_back({one.name, {{"samples per second", rate.get<double>(), rate_text(rate.get<double>())}}});
  return chart.rows.empty() ? Html() : draw(chart);
}

Html lines_of(const std::vector<NamedRun>& runs, Metric metric, const char* key, const char* title, const char* unit,
              bool from_zero) {
  LineChart chart = line_chart(Place{}, key, title, unit);
  chart.from_zero = from_zero;
  for (const NamedRun& one : runs)
    if (!one.run->steps.of(metric).empty() && chart.series.size() < kMostLines)
      chart.series.push_back(series(one.name, one.run->steps.of(metric)));
  if (chart.series.empty()) return {};
  if (runs.size() > kMostLines) chart.title += fmt::format(", the first {} runs", kMostLines);
  return draw(chart);
}

Html forest_of_rungs(const std::vector<NamedRun>& runs) {
  Forest chart{
      .key = "rungs", .title = "Throughput against the run before", .faster = "faster", .slower = "slower", .rows = {}};
  for (const NamedRun& one : runs)
    if (one.against_previous)
      if (auto row = forest_row(one.name, *one.against_previous)) chart.rows.push_back(*row);
  return chart.rows.empty() ? Html() : draw(chart);
}

/// "loader", "computing"; the page of the run itself says more.
Html limit_word(const RunFolder& run) {
  const auto limit = limit_of(run);
  return escape(limit ? limit->sentence.substr(0, limit->sentence.find_first_of(":.")) : std::string(kMissing));
}

/// The switches that were observed to do something.
std::string effective_switches(const RunFolder& run) {
  std::string names;
  for (const auto& [name, receipt] : at(run.summary, "receipts").items())
    if (at(receipt, "effective") == true) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "none" : shortened(names);
}

Html against_previous(const NamedRun& one) {
  if (!one.against_previous) return escape(kMissing);
  const Figures gain(*one.against_previous, one.keys + "against_previous.");
  return verdict_chip(gain) + " " + gain_figures(gain);
}

Html recipes(const std::vector<NamedRun>& runs, bool against_previous) {
  Html all;
  for (size_t i = 1; i < runs.size(); ++i) {
    const NamedRun& other = runs[against_previous ? i - 1 : 0];
    all += element("h3", escape(runs[i].name)) +
           draw(recipe_differences(other.run->recipe, runs[i].run->recipe), other.name, runs[i].name);
  }
  return all;
}

}  // namespace

Html runs_table(const std::vector<NamedRun>& runs) {
  const bool compared =
      std::any_of(runs.begin(), runs.end(), [](const NamedRun& one) { return one.against_previous != nullptr; });
  Table table{.caption = "Runs",
              .columns = {{"run"},
                          {"samples/s", true},
                          {"step, median", true},
                          {"waiting for data", true},
                          {"GPU", true},
                          {"CPU", true},
                          {"peak memory", true},
                          {"last loss", true},
                          {"limited by"},
                          {"ended"}},
              .rows = {}};
  if (compared) table.columns.insert(table.columns.begin() + 2, {"against the run before", true});
  for (const NamedRun& one : runs) {
    const Figures summary(one.run->summary, one.keys);
    std::vector<Html> row{figure(one.keys + "name", one.name, one.name),
                          summary.number("samples_per_s", rate_text),
                          summary.number("step_ms.p50", ms_text),
                          summary.number("data_wait_pct", percent_text),
                          summary.number("gpu_util_pct", percent_text),
                          summary.number("cpu_util_pct", percent_text),
                          summary.number("peak_memory_mib", mib_text),
                          summary.number("loss.last", plain_text),
                          limit_word(*one.run),
                          one.run->ended() ? summary.text("status") : Html("without a summary")};
    if (compared) {
      row.insert(row.begin() + 2, against_previous(one));
    }
    table.rows.push_back(std::move(row));
  }
  return draw(table);
}

Html switches_of_runs(const std::vector<NamedRun>& runs) {
  Html items;
  for (const NamedRun& one : runs)
    items += element("li", element("strong", escape(one.name)) + escape(": " + effective_switches(*one.run)));
  return element("h2", "Which switches did what") + element("ul", {{"class", "plain"}}, items);
}

std::vector<Section> side_by_side(const std::vector<NamedRun>& runs, bool against_previous) {
  std::vector<Section> sections;
  const auto add = [&](const char* id, const char* title, Html content) {
    if (!content.empty()) sections.push_back({id, title, std::move(content)});
  };
  add("speed-section", "Speed",
      cards(bars_of_throughput(runs) + forest_of_rungs(runs) +
            lines_of(runs, Metric::samples_per_s, "throughput-lines", "Throughput over the steps", "samples/s", true) +
            lines_of(runs, Metric::data_wait_ms, "wait-lines", "Waiting for data", "ms", true)));
  add("loss-section", "Loss", cards(lines_of(runs, Metric::loss, "loss-lines", "Loss", "", false)));
  add("recipes-section", against_previous ? "What each run changes" : "What differs from the first run",
      recipes(runs, against_previous));
  return sections;
}

}  // namespace trainopt::report
