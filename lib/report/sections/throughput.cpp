#include "base/units.h"
#include "report/charts.h"
#include "report/figures.h"
#include "report/number_text.h"
#include "report/sections.h"

#include <fmt/format.h>

#include <cmath>

namespace trainopt::report {
namespace {

/// Where a resumed run goes on, and where the measured steps begin.
std::vector<Mark> marks_of(const RunFolder& run) {
  std::vector<Mark> marks;
  if (const Json& resumed = at(run.summary, "resumed_from"); resumed.is_number())
    marks.push_back({resumed.get<double>(), "resumed"});
  if (at(run.summary, "left_out_steps").is_number() && run.warmup_end() > 0)
    marks.push_back({static_cast<double>(run.warmup_end()), "end of the warm-up"});
  return marks;
}

LineChart throughput_chart(const RunFolder& run, const Place& place) {
  LineChart chart = line_chart(place, "throughput", "Throughput", "samples/s");
  chart.marks = marks_of(run);
  chart.series.push_back(series("samples per second", run.steps.of(Metric::samples_per_s)));
  return chart;
}

LineChart split_chart(const RunFolder& run, const Place& place) {
  LineChart chart = line_chart(place, "split", "Where a step's time goes", "ms");
  chart.stacked = true;
  const auto add = [&](const char* name, const Columns& columns) {
    if (!columns.empty()) chart.series.push_back(series(name, columns));
  };
  add("waiting for data", run.steps.of(Metric::data_wait_ms));
  add("forward", run.steps.of(Metric::forward_ms));
  add("backward", run.steps.of(Metric::backward_ms));
  add("update", run.steps.of(Metric::update_ms));
  add("other", run.steps.rest_ms());
  return chart;
}

}  // namespace

LineChart line_chart(const Place& place, std::string_view key, std::string title, std::string unit) {
  LineChart chart;
  chart.key = place.ids + std::string(key);
  chart.title = std::move(title);
  chart.unit = std::move(unit);
  chart.x_title = "step";
  chart.from_zero = true;
  return chart;
}

Series series(std::string name, const Columns& columns) {
  return {std::move(name), columns.columns(), columns.count()};
}

Section throughput_section(const RunFolder& run, const Place& place) {
  Section section{place.ids + "throughput-section", place.heading + "Throughput", {}};
  if (run.steps.steps() == 0) return section;
  Html charts = draw(throughput_chart(run, place)) + draw(split_chart(run, place));
  if (!run.steps.of(Metric::comm_exposed_ms).empty()) {
    LineChart exchange = line_chart(place, "exchange", "Communication that the step waited for", "ms");
    exchange.series.push_back(series("exposed communication", run.steps.of(Metric::comm_exposed_ms)));
    charts += draw(exchange);
  }
  section.content = cards(charts);
  return section;
}

namespace {

std::string rate_words(double rate) { return fmt::format("{:.3g}", rate); }

/// Over the logarithm of the rates.
Series series_of(const char* name, const Json& rates, const Json& losses) {
  Columns columns;
  const size_t count = rates.is_array() && losses.is_array() ? std::min(rates.size(), losses.size()) : 0;
  for (size_t i = 0; i < count; ++i)
    if (rates[i].is_number() && losses[i].is_number())
      columns.add(std::log10(rates[i].get<double>()), losses[i].get<double>());
  return {name, columns.columns(), columns.count()};
}

}  // namespace

Html rate_range_headline(const Figures& result) {
  return key_figure("suggested learning rate", result.number("suggestion", rate_words), "", result.text("reason"));
}

Html rate_range_chart(const Figures& result, const Place& place) {
  LineChart chart{.key = place.ids + "rate-range",
                  .title = "Loss at each learning rate",
                  .unit = "",
                  .x_title = "log10 of the learning rate",
                  .series = {series_of("loss of the step", result.json("rates"), result.json("losses")),
                             series_of("smoothed", result.json("rates"), result.json("smoothed"))},
                  .marks = {}};
  const auto mark = [&](const char* path, const char* what) {
    if (const auto rate = result.value(path); rate && *rate > 0)
      chart.marks.push_back({std::log10(*rate), fmt::format("{} {}", what, rate_words(*rate))});
  };
  mark("suggestion", "suggestion");
  mark("lowest_loss_at", "lowest loss");
  mark("failed_at", "failed");
  return cards(draw(chart));
}

Section step_times_section(const RunFolder& run, const Place& place) {
  Section section{place.ids + "step-times-section", place.heading + "How long steps take", {}};
  const auto& times = run.steps.step_times();
  const auto drawn = times.drawn(60);
  const Figures summary(run.summary, place.keys);
  if (times.count() > 1) {
    Histogram chart{.key = place.ids + "step-times",
                    .title = "Distribution of step times",
                    .unit = "ms",
                    .bins = drawn.bins,
                    .marks = {},
                    .beyond = drawn.beyond};
    for (const char* name : {"p50", "p95", "p99"})
      if (const auto value = summary.value(std::string("step_ms.") + name);
          value && *value >= drawn.bins.front().low && *value <= drawn.bins.back().high)
        chart.marks.push_back({*value, fmt::format("{} {}", name, ms_text(*value))});
    section.content = draw(chart);
    if (const auto measured = summary.value("measured_steps");
        measured && *measured > 2.0 * static_cast<double>(times.count()))
      section.content +=
          element("p", {{"class", "note"}},
                  escape(fmt::format("The chart counts the {} that were recorded of {} (logging.every_n_steps); the "
                                     "percentiles are those of all.",
                                     counted(times.count(), "step"),
                                     counted(static_cast<int64_t>(*measured), "measured step"))));
  }
  if (summary.value("step_ms.mean"))
    section.content +=
        fact_table("Step times", {{"mean", summary.known("step_ms.mean", ms_text)},
                                  {"half of the steps take at most (p50)", summary.known("step_ms.p50", ms_text)},
                                  {"95 % take at most (p95)", summary.known("step_ms.p95", ms_text)},
                                  {"99 % take at most (p99)", summary.known("step_ms.p99", ms_text)},
                                  {"measured steps", summary.known("measured_steps", count_text)},
                                  {"warm-up steps, not counted", summary.known("left_out_steps", count_text)},
                                  {"time to the first step", summary.known("time_to_first_step_s", seconds_text)}});
  return section;
}

}  // namespace trainopt::report
