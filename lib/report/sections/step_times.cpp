#include "base/counted.h"
#include "report/figures.h"
#include "report/run_sections.h"

#include <fmt/format.h>

namespace trainopt::report {

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
