#include "report/figures.h"
#include "report/sections.h"

#include <fmt/format.h>

namespace trainopt::report {
namespace {

constexpr std::pair<const char*, const char*> kCategories[] = {
    {"parameters", "parameters_bytes"},   {"gradients", "gradients_bytes"}, {"optimizer state", "optimizer_bytes"},
    {"activations", "activations_bytes"}, {"batches", "batches_bytes"},     {"other", "other_bytes"}};

Bars::Row categories_of(const Figures& memory, std::string name) {
  Bars::Row row{std::move(name), {}};
  for (const auto& [word, key] : kCategories)
    if (const auto bytes = memory.value(key); bytes && *bytes > 0)
      row.parts.push_back({word, *bytes / 0x1p20, bytes_text(*bytes)});
  return row;
}

/// The peak as it was measured, and as plan.json foresaw it.
Html categories(const RunFolder& run, const Place& place) {
  Bars chart{.key = place.ids + "memory-peak", .title = "Tensors at the step's peak", .unit = "MiB", .rows = {}};
  const Figures measured = Figures(run.summary, place.keys).of("memory");
  const Figures forecast = Figures(run.plan, place.keys + "plan.").of("memory");
  if (Bars::Row row = categories_of(measured, "measured"); !row.parts.empty()) chart.rows.push_back(row);
  if (Bars::Row row = categories_of(forecast, "forecast"); !row.parts.empty()) chart.rows.push_back(row);
  return chart.rows.empty() ? Html() : draw(chart);
}

Html activations_by_unit(const RunFolder& run, const Place& place) {
  Bars chart{.key = place.ids + "memory-units",
             .title = "Activations kept by each unit at the peak",
             .unit = "MiB",
             .rows = {}};
  const Json& units = at(run.summary, "memory.units");
  for (size_t i = 0; units.is_array() && i < shown_of(units); ++i) {
    const Json& unit = units[i];
    const Json &name = at(unit, "unit"), &bytes = at(unit, "activations_bytes");
    if (!bytes.is_number() || bytes.get<double>() <= 0) continue;
    const double size = bytes.get<double>();
    chart.rows.push_back({value_text(name), {{"activations", size / 0x1p20, bytes_text(size)}}});
  }
  return chart.rows.empty() ? Html() : draw(chart) + more_of(units);
}

Html memory_over_time(const RunFolder& run, const Place& place) {
  LineChart chart = line_chart(place, "memory", "Memory", "MiB");
  const std::pair<const char*, Metric> lines[] = {{"tensors", Metric::memory_allocated_mib},
                                                  {"active", Metric::memory_active_mib},
                                                  {"reserved", Metric::memory_reserved_mib},
                                                  {"in use on the GPU", Metric::gpu_memory_used_mib},
                                                  {"resident in the process", Metric::process_rss_mib}};
  for (const auto& [name, metric] : lines)
    if (!run.steps.of(metric).empty()) chart.series.push_back(series(name, run.steps.of(metric)));
  return chart.series.empty() ? Html() : draw(chart);
}

Html warning(const std::string& sentence) { return element("p", {{"class", "warning"}}, escape(sentence)); }

Html findings(const Json& summary) {
  Html list;
  const auto bytes = [](const Json& finding, const char* key) {
    return at(finding, key).is_number() ? bytes_text(at(finding, key).get<double>()) : std::string(kMissing);
  };
  const auto each = [&](const char* path, auto use) {
    const Json& found = at(summary, path);
    for (size_t i = 0; found.is_array() && i < shown_of(found); ++i) use(found[i]);
    list += more_of(found);
  };
  each("memory.leaks", [&](const Json& leak) {
    list += warning(fmt::format("A leak: {} keeps {} more in every step, seen over {} steps.",
                                value_text(at(leak, "where")), bytes(leak, "bytes_per_step"),
                                value_text(at(leak, "steps"))));
  });
  each("memory.spikes", [&](const Json& spike) {
    list += warning(fmt::format("A spike: the peak of step {} was {} instead of the usual {}; {} grew by {}.",
                                value_text(at(spike, "step")), bytes(spike, "peak_bytes"), bytes(spike, "usual_bytes"),
                                value_text(at(spike, "where")), bytes(spike, "grown_bytes")));
  });
  return list;
}

}  // namespace

Section memory_section(const RunFolder& run, const Place& place) {
  Section section{place.ids + "memory-section", place.heading + "Memory", {}};
  const Figures summary(run.summary, place.keys);
  section.content = cards(categories(run, place) + activations_by_unit(run, place) + memory_over_time(run, place)) +
                    findings(run.summary);
  if (section.content.empty()) return section;
  section.content +=
      fact_table("Memory", {{"peak of the process or GPU", summary.known("peak_memory_mib", mib_text)},
                            {"as a share of the device's memory", summary.known("memory_peak_pct", percent_text)},
                            {"tensors at the step's peak", summary.known("memory.peak_bytes", bytes_text)},
                            {"forecast", summary.known("memory.forecast_bytes", bytes_text)},
                            {"forecast against measured", summary.known("memory.forecast_error_pct", percent_text)},
                            {"where the peak is", summary.known_text("memory.where")},
                            {"allocations retried", summary.known("alloc_retries", count_text)}});
  return section;
}

}  // namespace trainopt::report
