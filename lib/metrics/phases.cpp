#include "metrics/phases.h"

#include "metrics/format.h"

#include <fmt/ranges.h>

#include <vector>

namespace trainopt {
namespace {

/// "forward" for forward_ms.
std::string phase_name(Metric metric) {
  const std::string_view name = info(metric).name;
  return std::string(name.substr(0, name.rfind('_')));
}

}  // namespace

void PhaseSums::add(const Values& row) {
  ++steps_;
  for (size_t i = 0; i < kPhases.size(); ++i) {
    const auto& value = row[kPhases[i]];
    sums_ms_[i] = sums_ms_[i] && value ? std::optional(*sums_ms_[i] + *value) : std::nullopt;
  }
}

void PhaseSums::add(const PhaseSums& other) {
  steps_ += other.steps_;
  for (size_t i = 0; i < kPhases.size(); ++i)
    sums_ms_[i] = sums_ms_[i] && other.sums_ms_[i] ? std::optional(*sums_ms_[i] + *other.sums_ms_[i]) : std::nullopt;
}

std::array<std::optional<double>, 3> PhaseSums::means_ms() const {
  std::array<std::optional<double>, 3> means;
  for (size_t i = 0; i < kPhases.size(); ++i)
    if (steps_ > 0 && sums_ms_[i]) means[i] = *sums_ms_[i] / static_cast<double>(steps_);
  return means;
}

Json PhaseSums::means_json() const {
  Json json;
  const auto means = means_ms();
  for (size_t i = 0; i < kPhases.size(); ++i) json[phase_name(kPhases[i])] = means[i] ? Json(*means[i]) : Json(nullptr);
  return json;
}

std::string PhaseSums::text() const {
  std::vector<std::string> parts;
  const auto means = means_ms();
  for (size_t i = 0; i < kPhases.size(); ++i)
    if (means[i]) parts.push_back(fmt::format("{} {}", phase_name(kPhases[i]), human_milliseconds(*means[i])));
  return fmt::format("{}", fmt::join(parts, ", "));
}

Json to_json(const PhaseSums& sums) {
  Json json{{"steps", sums.steps_}};
  for (size_t i = 0; i < sums.sums_ms_.size(); ++i)
    json[std::string(info(PhaseSums::kPhases[i]).name)] = sums.sums_ms_[i] ? Json(*sums.sums_ms_[i]) : Json(nullptr);
  return json;
}

PhaseSums phase_sums_from(const Json& json) {
  PhaseSums sums;
  sums.steps_ = json.at("steps");
  for (size_t i = 0; i < sums.sums_ms_.size(); ++i) {
    const Json& value = json.at(std::string(info(PhaseSums::kPhases[i]).name));
    sums.sums_ms_[i] = value.is_null() ? std::nullopt : std::optional(value.get<double>());
  }
  return sums;
}

}  // namespace trainopt
