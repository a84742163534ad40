#include "report/figures.h"
#include "report/run_sections.h"

namespace trainopt::report {

Section ranks_section(const RunFolder& run, const Place& place) {
  Section section{place.ids + "ranks-section", place.heading + "Ranks", {}};
  if (run.rank_ms.empty()) return section;
  Strip chart{.key = place.ids + "ranks",
              .title = "Each rank's own time in a step, without waiting for the others",
              .unit = "ms",
              .x_title = "step",
              .rows = {}};
  for (const auto& rank : run.rank_ms) chart.rows.push_back({rank.name, rank.columns.columns()});
  section.content = draw(chart);
  const Figures straggler = Figures(run.summary, place.keys).of("straggler");
  if (straggler.value("rank"))
    section.content += fact_table("Straggler", {{"slow rank", straggler.number("rank", count_text)},
                                                {"its own time", straggler.number("busy_ms", ms_text)},
                                                {"the others' median", straggler.number("others_ms", ms_text)},
                                                {"share of the steps", straggler.number("steps_pct", percent_text)}});
  return section;
}

}  // namespace trainopt::report
