#include "report/charts.h"
#include "report/number_text.h"
#include "report/result_sections.h"

#include <fmt/format.h>

#include <cmath>

namespace trainopt::report {
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

}  // namespace trainopt::report
