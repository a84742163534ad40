#include "base/units.h"
#include "report/figures.h"
#include "report/sections.h"

#include <fmt/format.h>

namespace trainopt::report {
namespace {

struct TelemetryLine {
  const char *name, *words;
};

Html telemetry_chart(const RunFolder& run, const Place& place, const char* key, const char* title, const char* unit,
                     std::initializer_list<TelemetryLine> lines, std::optional<double> top) {
  LineChart chart = line_chart(place, key, title, unit);
  chart.x_title = "s";
  chart.top = top;
  for (const auto& line : lines)
    for (const auto& each : run.telemetry)
      if (each.name == line.name && !each.columns.empty()) chart.series.push_back(series(line.words, each.columns));
  return chart.series.empty() ? Html() : draw(chart);
}

std::string throttle_reasons(int64_t bits) {
  std::string text;
  const std::pair<int64_t, const char*> reasons[] = {{4, "power cap"},
                                                     {8, "hardware slow-down"},
                                                     {32, "heat (software)"},
                                                     {64, "heat (hardware)"},
                                                     {128, "power brake"}};
  for (const auto& [bit, words] : reasons)
    if (bits & bit) text += (text.empty() ? "" : ", ") + std::string(words);
  return text.empty() ? fmt::format("bits {}", bits) : text;
}

Html throttling(const RunFolder& run) {
  if (run.steps.throttled_steps() == 0) return {};
  return element(
      "p", {{"class", "warning"}},
      escape(fmt::format("The GPU's clock was throttled in {} of {}: {}.", with_commas(run.steps.throttled_steps()),
                         counted(run.steps.steps(), "recorded step"), throttle_reasons(run.steps.throttle_bits()))));
}

}  // namespace

Section hardware_section(const RunFolder& run, const Place& place) {
  Section section{place.ids + "hardware-section", place.heading + "Hardware", {}};
  Html charts;
  const auto chart = [&](auto... arguments) { charts += telemetry_chart(run, place, arguments...); };
  using Lines = std::initializer_list<TelemetryLine>;
  chart("gpu-utilization", "GPU utilization", "%",
        Lines{{"gpu_util_pct", "a kernel running (NVML)"},
              {"gpu_sm_util_pct", "multiprocessors busy (GPM)"},
              {"gpu_tensor_util_pct", "tensor cores active (GPM)"}},
        std::optional(100.0));
  chart("clock", "Clock of the multiprocessors", "MHz", Lines{{"gpu_sm_clock_mhz", "clock"}}, std::optional<double>());
  chart("power", "Power of the GPU", "W", Lines{{"gpu_power_w", "power"}}, std::optional<double>());
  chart("cpu-utilization", "CPU utilization", "%",
        Lines{{"cpu_util_pct", "this process"}, {"other_cpu_pct", "other programs"}}, std::optional(100.0));
  section.content = throttling(run) + cards(charts);
  if (section.content.empty()) return section;
  const Figures summary(run.summary, place.keys);
  section.content += fact_table(
      "Hardware", {{"GPU: a kernel running (NVML)", summary.known("gpu_util_pct", percent_text)},
                   {"GPU: multiprocessors busy", summary.known("gpu_sm_util_pct", percent_text)},
                   {"GPU: tensor cores active", summary.known("gpu_tensor_util_pct", percent_text)},
                   {"CPU: of the allowed cores", summary.known("cpu_util_pct", percent_text)},
                   {"energy", summary.value("energy_j") ? summary.number("energy_j", count_text) + " J" : ""},
                   {"samples per joule", summary.known("samples_per_joule", plain_text)},
                   {"price of a million samples", summary.known("price_per_million_samples", plain_text)}});
  return section;
}

namespace {

Html in_words(const Figures& environment, const Json& list, const char* path, const char* name_key) {
  Html words;
  for (size_t i = 0; list.is_array() && i < shown_of(list); ++i) {
    const std::string at_item =
        list[i].is_object() ? fmt::format("{}.{}.{}", path, i, name_key) : fmt::format("{}.{}", path, i);
    words += (i ? ", " : "") + environment.text(at_item);
  }
  return words;
}

Html not_measured(const Json& reasons) {
  if (!reasons.is_object() || reasons.empty()) return {};
  Table table{.caption = "What was not measured", .columns = {{"number"}, {"reason"}}, .rows = {}};
  for (const auto& [name, reason] : reasons.items())
    if (table.rows.size() < kMostItems)
      table.rows.push_back({element("code", escape(name)), escape(value_text(reason))});
  return element("details", element("summary", "What was not measured, and why") + draw(table));
}

}  // namespace

Html environment_facts(const Figures& environment) {
  if (!environment.json().is_object()) return {};
  const auto text = [&](const char* path) { return environment.known_text(path); };
  return fact_table("Environment",
                    {{"trainopt", text("trainopt") + (text("commit").empty() ? "" : ", ") + text("commit")},
                     {"libtorch", text("libtorch")},
                     {"CUDA", text("cuda")},
                     {"cuDNN", text("cudnn")},
                     {"NCCL", text("nccl")},
                     {"driver", text("driver")},
                     {"GPUs", in_words(environment, environment.json("gpus"), "gpus", "name")},
                     {"CPU", text("cpu.model")},
                     {"cores allowed", text("cpu.cores_allowed")},
                     {"threads", text("cpu.threads")},
                     {"instructions", text("cpu.instructions")},
                     {"memory", environment.known("memory_mib", mib_text)},
                     {"kernel", text("kernel")},
                     {"distribution", text("distribution")}}) +
         not_measured(environment.json("not_measured"));
}

Section environment_section(const RunFolder& run, const Place& place) {
  return {place.ids + "environment-section", place.heading + "Environment",
          environment_facts(Figures(run.environment, place.keys + "environment."))};
}

}  // namespace trainopt::report
