#include "report/figures.h"
#include "report/sections.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt::report {
namespace {

constexpr size_t kShownOperations = 25;

/// A trace of several ranks has each rank's analysis; the page shows rank 0's.
Figures of_first_rank(const RunFolder& run, const Place& place) {
  const Figures profile(run.profile, place.keys + "profile.");
  return profile.json("ranks").is_array() ? profile.of("ranks.0") : profile;
}

Html breakdown(const Figures& profile, const Place& place) {
  Bars chart{
      .key = place.ids + "profile-breakdown", .title = "Where the profiled steps' time went", .unit = "ms", .rows = {}};
  Bars::Row row{"profiled steps", {}};
  for (const auto& [name, value] : profile.json("breakdown_ms").items())
    if (value.is_number() && value.get<double>() > 0)
      row.parts.push_back({name, value.get<double>(), ms_text(value.get<double>())});
  if (row.parts.empty()) return {};
  chart.rows.push_back(std::move(row));
  return draw(chart);
}

Html units(const Figures& profile, const Place& place) {
  Bars chart{.key = place.ids + "profile-units",
             .title = "Time in each unit of the model, over the profiled steps",
             .unit = "ms",
             .rows = {}};
  const Json& list = profile.json("units");
  for (size_t i = 0; list.is_array() && i < shown_of(list); ++i) {
    const Json& unit = list[i];
    const bool device = at(unit, "device_forward_ms").is_number();
    Bars::Row row{value_text(at(unit, "name")), {}};
    for (const char* direction : {"forward", "backward"}) {
      const Json& ms = at(unit, fmt::format("{}{}_ms", device ? "device_" : "", direction));
      if (ms.is_number() && ms.get<double>() > 0)
        row.parts.push_back({direction, ms.get<double>(), ms_text(ms.get<double>())});
    }
    if (!row.parts.empty()) chart.rows.push_back(std::move(row));
  }
  return chart.rows.empty() ? Html() : draw(chart) + more_of(list);
}

/// How much of what the roofline allows each unit attains; empty if the machine's peaks were not measured.
Html attained(const Figures& profile) {
  Table table{.caption = "Units against the roofline, forward and backward",
              .columns = {{"unit"},
                          {"FLOPs", true},
                          {"memory traffic", true},
                          {"at least", true},
                          {"attainable", true},
                          {"achieved", true},
                          {"attained", true},
                          {"limited by"}},
              .rows = {}};
  const Json& list = profile.json("units");
  for (size_t i = 0; list.is_array() && i < shown_of(list); ++i) {
    const Figures unit = profile.of(fmt::format("units.{}", i));
    if (!unit.value("attained_pct")) continue;
    table.rows.push_back({unit.text("name"), unit.number("step_flops", flops_text), unit.number("bytes", bytes_text),
                          unit.number("least_ms", ms_text), unit.number("attainable_flops_per_s", flops_per_s_text),
                          unit.number("achieved_flops_per_s", flops_per_s_text),
                          unit.number("attained_pct", percent_text), unit.text("limited_by")});
  }
  return table.rows.empty() ? Html() : element("h3", "Units against the roofline") + draw(table);
}

/// The places of the list's items, the largest by `key` first; without the labels that trainopt puts around others.
std::vector<size_t> largest_first(const Json& list, const char* key) {
  std::vector<size_t> order;
  for (size_t i = 0; list.is_array() && i < list.size(); ++i)
    if (at(list[i], "kind") != "user_annotation") order.push_back(i);
  const auto value = [&](size_t i) { return at(list[i], key).is_number() ? at(list[i], key).get<double>() : 0; };
  std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) { return value(left) > value(right); });
  return order;
}

std::vector<size_t> shown(std::vector<size_t> order) {
  order.resize(std::min(order.size(), kShownOperations));
  return order;
}

Html operations(const Figures& profile) {
  const Json& list = profile.json("operations");
  if (list.empty()) return {};
  const bool device = profile.json("device").is_object();
  Table table{.caption = "Operations",
              .columns = {{"operation"}, {"calls", true}, {"CPU, itself", true}, {"CPU, in total", true}},
              .rows = {}};
  if (device) table.columns.insert(table.columns.end(), {{"device, itself", true}, {"device, in total", true}});
  table.columns.push_back({"FLOPs", true});
  const auto order = largest_first(list, device ? "device_self_ms" : "cpu_self_ms");
  for (const size_t i : shown(order)) {
    const Figures row = profile.of(fmt::format("operations.{}", i));
    std::vector<Html> cells{row.text("name"), row.number("calls", count_text), row.number("cpu_self_ms", ms_text),
                            row.number("cpu_total_ms", ms_text)};
    if (device) {
      cells.push_back(row.number("device_self_ms", ms_text));
      cells.push_back(row.number("device_total_ms", ms_text));
    }
    cells.push_back(row.value("flops").value_or(0) > 0 ? row.number("flops", flops_text) : Html());
    table.rows.push_back(std::move(cells));
  }
  return element("h3",
                 escape(order.size() > kShownOperations
                            ? fmt::format("The {} operations with the most time of {}", kShownOperations, order.size())
                            : std::string("Operations"))) +
         draw(table);
}

Html kernels(const Figures& profile) {
  const Json& list = profile.json("kernels");
  if (list.empty()) return {};
  Table table{.caption = "Kernels",
              .columns = {{"kernel"},
                          {"calls", true},
                          {"total", true},
                          {"mean", true},
                          {"blocks", true},
                          {"occupancy", true},
                          {"tensor cores"}},
              .rows = {}};
  for (const size_t i : shown(largest_first(list, "total_ms"))) {
    const Figures row = profile.of(fmt::format("kernels.{}", i));
    table.rows.push_back({row.text("name"), row.number("calls", count_text), row.number("total_ms", ms_text),
                          row.number("mean_ms", ms_text), row.number("blocks", count_text),
                          row.number("occupancy_percent", percent_text), row.text("tensor_cores")});
  }
  return element("h3", "Kernels") + draw(table);
}

Html device_time(const Figures& profile) {
  const Figures device = profile.of("device");
  if (!device.value("span_ms")) return {};
  std::vector<std::pair<std::string, Html>> facts{{"device busy", device.number("busy_ms", ms_text)},
                                                  {"of", device.number("span_ms", ms_text)}};
  for (const auto& [cause, ms] : device.json("idle_ms").items())
    if (ms.is_number() && ms.get<double>() > 0)
      facts.emplace_back("idle: " + cause, device.number("idle_ms." + cause, ms_text));
  return fact_table("The device in the profiled steps", facts);
}

}  // namespace

Section profile_section(const RunFolder& run, const Place& place) {
  Section section{place.ids + "profile-section", place.heading + "Profile", {}};
  if (!run.profile.is_object()) return section;
  const Figures profile = of_first_rank(run, place);
  section.content = cards(breakdown(profile, place) + units(profile, place)) + attained(profile) +
                    device_time(profile) + operations(profile) + kernels(profile);
  const Figures summary(run.summary, place.keys);
  if (!section.content.empty() && summary.value("profiler.steps"))
    section.content =
        fact_table("The profiler",
                   {{"profiled steps, not counted elsewhere", summary.number("profiler.steps", count_text)},
                    {"recording made a step slower by", summary.number("profiler.slowdown_pct", percent_text)}}) +
        section.content;
  return section;
}

}  // namespace trainopt::report
