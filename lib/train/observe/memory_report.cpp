#include "train/observe/memory_report.h"

#include "base/units.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

/// Units that are named on the console; the rest are in summary.json.
constexpr size_t kUnitsShown = 3;

std::string bytes_text(int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

/// "(layer1.0 210 MiB, layer1.1 180 MiB, stem 90 MiB and 7 more units)", largest first.
std::string units_text(std::vector<std::pair<std::string, int64_t>> units) {
  std::erase_if(units, [](const auto& unit) { return unit.second <= 0; });
  if (units.size() < 2) return "";
  std::stable_sort(units.begin(), units.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kUnitsShown, units.size()); ++i)
    shown.push_back(units[i].first + " " + bytes_text(units[i].second));
  const size_t more = units.size() - shown.size();
  return fmt::format(" ({}{})", fmt::join(shown, ", "),
                     more == 0 ? "" : fmt::format(" and {} more unit{}", more, more == 1 ? "" : "s"));
}

}  // namespace

std::string breakdown_text(const MemoryBreakdown& breakdown) {
  std::vector<MemoryUse> uses(kMemoryUses.begin(), kMemoryUses.end());
  std::stable_sort(uses.begin(), uses.end(), [&](MemoryUse a, MemoryUse b) { return breakdown[a] > breakdown[b]; });
  std::vector<std::string> parts;
  for (const MemoryUse use : uses) {
    if (breakdown[use] <= 0) continue;
    parts.push_back(fmt::format("{} {}{}", name_of(use), bytes_text(breakdown[use]),
                                use == MemoryUse::activations ? units_text(breakdown.activations) : ""));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

Json breakdown_json(const MemoryBreakdown& breakdown) {
  Json json;
  for (const MemoryUse use : kMemoryUses) json[fmt::format("{}_bytes", name_of(use))] = breakdown[use];
  json["units"] = Json::array();
  for (const auto& [unit, bytes] : breakdown.activations)
    json["units"].push_back({{"unit", unit}, {"activations_bytes", bytes}});
  return json;
}

std::string memory_text(const MemoryPeak& peak) {
  if (peak.step == 0) return "";
  return fmt::format("{} live at the peak of step {}, in {}: {}", bytes_text(peak.breakdown.total()), peak.step,
                     peak.where, breakdown_text(peak.breakdown));
}

std::optional<double> forecast_error_pct(const MemoryPeak& measured, const std::optional<MemoryForecast>& forecast) {
  if (measured.step == 0 || !forecast) return std::nullopt;
  return 100 *
         (static_cast<double>(forecast->peak.breakdown.total()) / static_cast<double>(measured.breakdown.total()) - 1);
}

std::string forecast_receipt(const MemoryPeak& measured, const std::optional<MemoryForecast>& forecast) {
  const auto error = forecast_error_pct(measured, forecast);
  if (!error) return "";
  return fmt::format("{} in {}, {:.1f} % {} what was measured", bytes_text(forecast->peak.breakdown.total()),
                     forecast->peak.where, std::abs(*error), *error < 0 ? "below" : "above");
}

Json memory_json(const StepTrace& trace, const std::optional<MemoryForecast>& forecast) {
  const MemoryPeak& peak = trace.memory;
  if (peak.step == 0) return nullptr;
  Json json = {{"step", peak.step}, {"where", peak.where}, {"peak_bytes", peak.breakdown.total()}};
  json.update(breakdown_json(peak.breakdown));
  const auto error = forecast_error_pct(peak, forecast);
  json["forecast_bytes"] = error ? Json(forecast->peak.breakdown.total()) : Json();
  json["forecast_error_pct"] = error ? Json(*error) : Json();
  json["leaks"] = Json::array();
  for (const MemoryLeak& leak : trace.memory_leaks)
    json["leaks"].push_back({{"where", leak.where}, {"bytes_per_step", leak.bytes_per_step}, {"steps", leak.steps}});
  json["spikes"] = Json::array();
  for (const MemorySpike& spike : trace.memory_spikes)
    json["spikes"].push_back({{"step", spike.step},
                              {"where", spike.where},
                              {"peak_bytes", spike.peak_bytes},
                              {"usual_bytes", spike.usual_bytes},
                              {"grown_bytes", spike.grown_bytes}});
  return json;
}

}  // namespace trainopt
