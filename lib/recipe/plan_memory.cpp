#include "recipe/plan_memory.h"

#include "base/units.h"
#include "train/observe/memory_report.h"

namespace trainopt {
namespace {

std::string text_of_bytes(int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

std::string capacity_text(const Plan& plan) {
  const bool shared = plan.device.is_cpu() && plan.position.local_ranks > 1;
  return fmt::format("{} {}",
                     plan.device.is_cuda() ? "the GPU's"
                     : shared              ? "this rank's share of the machine's memory,"
                                           : "the machine's",
                     text_of_bytes(plan.memory->capacity_bytes));
}

}  // namespace

std::string forecast_text(const Plan& plan) {
  const MemoryForecast& memory = *plan.memory;
  const int64_t bytes = memory.peak.breakdown.total();
  std::string text = fmt::format("{} forecast at the peak ({}): {}", text_of_bytes(bytes), memory.peak.where,
                                 breakdown_text(memory.peak.breakdown));
  if (memory.capacity_bytes == 0) return text;
  const double percent = 100.0 * static_cast<double>(bytes) / static_cast<double>(memory.capacity_bytes);
  return text + fmt::format("; {:.{}f} % of {}{}", percent, percent < 1 ? 2 : 0, capacity_text(plan),
                            memory.leaves_room() ? ""
                            : memory.fits()      ? ": leaves little room for everything else"
                                                 : ": does not fit");
}

Json forecast_json(const MemoryForecast& forecast) {
  Json json = {{"forecast_bytes", forecast.peak.breakdown.total()},
               {"capacity_bytes", forecast.capacity_bytes > 0 ? Json(forecast.capacity_bytes) : Json()},
               {"fits", forecast.fits()},
               {"at", forecast.peak.where},
               {"remedies", forecast.remedies}};
  json.update(breakdown_json(forecast.peak.breakdown));
  return json;
}

std::string why_it_does_not_fit(const Plan& plan) {
  const MemoryForecast& memory = *plan.memory;
  const std::string change = memory.remedies.empty()
                                 ? "no smaller batch and no switch would make it fit; use a smaller model or samples"
                                 : "this would fit: " + memory.remedies.front();
  return fmt::format("a training step does not fit into memory; {}: the forecast of the peak is {}, of {}", change,
                     text_of_bytes(memory.peak.breakdown.total()), capacity_text(plan));
}

}  // namespace trainopt
