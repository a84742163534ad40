#include "report/figures.h"
#include "report/sections.h"

#include <algorithm>

namespace trainopt::report {
namespace {

/// The columns without the warm-up, whose long steps would hide all differences, each up to the next where steps
/// between them were not recorded.
std::vector<Column> comparable(const RunFolder& run, std::vector<Column> columns) {
  const auto warmup = static_cast<double>(run.warmup_end());
  if (!columns.empty() && columns.back().first > warmup)
    std::erase_if(columns, [&](const Column& column) { return column.last <= warmup; });
  std::vector<double> gaps;
  for (size_t i = 1; i < columns.size(); ++i) gaps.push_back(columns[i].first - columns[i - 1].last);
  if (gaps.empty()) return columns;
  std::nth_element(gaps.begin(), gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2), gaps.end());
  const double usual = gaps[gaps.size() / 2];
  for (size_t i = 0; i + 1 < columns.size(); ++i)
    if (columns[i + 1].first - columns[i].last <= usual) columns[i].last = columns[i + 1].first - 1;
  return columns;
}

}  // namespace

Section ranks_section(const RunFolder& run, const Place& place) {
  Section section{place.ids + "ranks-section", place.heading + "Ranks", {}};
  if (run.rank_ms.empty()) return section;
  Strip chart{.key = place.ids + "ranks",
              .title = "Each rank's own time in a step, without waiting for the others",
              .unit = "ms",
              .x_title = "step",
              .rows = {}};
  constexpr size_t kCells = 16'384;  // cells in the whole strip
  const size_t each = std::max<size_t>(8, kCells / run.rank_ms.size());
  for (size_t i = 0; i < std::min(run.rank_ms.size(), kCells / 8); ++i)
    chart.rows.push_back({run.rank_ms[i].name, comparable(run, merged(run.rank_ms[i].columns.columns(), each))});
  section.content = draw(chart);
  const Figures straggler = Figures(run.summary, place.keys).of("straggler");
  if (straggler.value("rank"))
    section.content +=
        fact_table("Straggler", {{"slowest rank", straggler.number("rank", count_text)},
                                 {"its own time", straggler.number("busy_ms", ms_text)},
                                 {"the others' median", straggler.number("others_ms", ms_text)},
                                 {"slowest in this share of the steps", straggler.number("steps_pct", percent_text)}});
  return section;
}

}  // namespace trainopt::report
