#include "report/figures.h"
#include "report/run_sections.h"

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
  LineChart chart{.key = place.ids + "throughput",
                  .title = "Throughput",
                  .unit = "samples/s",
                  .x_title = "step",
                  .series = {},
                  .marks = marks_of(run),
                  .from_zero = true,
                  .stacked = false,
                  .top = {}};
  chart.series.push_back(series("samples per second", run.steps.of(Metric::samples_per_s)));
  return chart;
}

LineChart split_chart(const RunFolder& run, const Place& place) {
  LineChart chart{.key = place.ids + "split",
                  .title = "Where a step's time goes",
                  .unit = "ms",
                  .x_title = "step",
                  .series = {},
                  .marks = {},
                  .from_zero = true,
                  .stacked = true,
                  .top = {}};
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

Series series(std::string name, const Columns& columns) {
  return {std::move(name), columns.columns(), columns.count()};
}

Section throughput_section(const RunFolder& run, const Place& place) {
  Section section{place.ids + "throughput-section", place.heading + "Throughput", {}};
  if (run.steps.steps() == 0) return section;
  Html charts = draw(throughput_chart(run, place)) + draw(split_chart(run, place));
  if (!run.steps.of(Metric::comm_exposed_ms).empty()) {
    LineChart exchange{.key = place.ids + "exchange",
                       .title = "Communication that the step waited for",
                       .unit = "ms",
                       .x_title = "step",
                       .series = {},
                       .marks = {},
                       .from_zero = true,
                       .stacked = false,
                       .top = {}};
    exchange.series.push_back(series("exposed communication", run.steps.of(Metric::comm_exposed_ms)));
    charts += draw(exchange);
  }
  section.content = cards(charts);
  return section;
}

}  // namespace trainopt::report
