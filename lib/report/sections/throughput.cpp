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

}  // namespace trainopt::report
