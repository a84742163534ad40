#include "report/figures.h"
#include "report/sections.h"

#include <fmt/format.h>

namespace trainopt::report {
namespace {

Html stages(const Figures& loader, const Place& place) {
  Bars chart{
      .key = place.ids + "loader-stages", .title = "Where the time of loading a sample goes", .unit = "%", .rows = {}};
  Bars::Row row{"loading a sample", {}};
  const std::pair<const char*, const char*> parts[] = {
      {"reading", "read_pct"}, {"decoding", "decode_pct"}, {"transforming", "transform_pct"}, {"other", "other_pct"}};
  for (const auto& [words, key] : parts)
    if (const auto share = loader.value(key); share && *share > 0)
      row.parts.push_back({words, *share, percent_text(*share)});
  if (row.parts.empty()) return {};
  chart.rows.push_back(std::move(row));
  return draw(chart);
}

}  // namespace

Section loader_section(const RunFolder& run, const Place& place) {
  Section section{place.ids + "loader-section", place.heading + "Loader", {}};
  Html charts;
  if (!run.steps.of(Metric::data_wait_ms).empty()) {
    LineChart chart = line_chart(place, "data-wait", "Waiting for data", "ms");
    chart.series.push_back(series("wait", run.steps.of(Metric::data_wait_ms)));
    charts = draw(chart);
  }
  const Figures summary(run.summary, place.keys), loader = summary.of("loader");
  section.content = cards(charts + stages(loader, place));
  if (section.content.empty()) return section;
  section.content += fact_table(
      "Loader",
      {{"share of the time waiting for data", summary.known("data_wait_pct", percent_text)},
       {"loader threads", loader.known("workers", count_text)},
       {"their time spent loading", loader.known("workers_busy_pct", percent_text)},
       {"samples loaded", loader.known("samples", count_text)},
       {"time for a sample", loader.value("sample_us") ? loader.number("sample_us", plain_text) + " µs" : Html()}});
  return section;
}

}  // namespace trainopt::report
