#include "train/step_place.h"

#include "train/observe/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace trainopt {
namespace {

/// Labels and the phases that they stand for.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kPhaseOfLabel{{{"forward", "forward"},
                                                                                      {"backward", "backward"},
                                                                                      {"update", "update"},
                                                                                      {"record", "record"},
                                                                                      {"loader::wait", "data"},
                                                                                      {"loader::transforms", "data"},
                                                                                      {"copy", "data"}}};

std::string_view phase_of(std::string_view label) {
  for (const auto& [name, phase] : kPhaseOfLabel)
    if (name == label) return phase;
  return {};
}

std::string_view unit_of(std::string_view label) {
  for (const std::string_view prefix : {kUnitLabel, kUnitBackwardLabel})
    if (label.starts_with(prefix)) return label.substr(prefix.size());
  return {};
}

}  // namespace

std::string StepPlace::text() const {
  return unit.empty() ? fmt::format("{}, outside the units", phase) : fmt::format("unit {}, {}", unit, phase);
}

void OpenLabels::begin(std::string_view label) { open_.emplace_back(label); }

void OpenLabels::end(std::string_view label) {
  const auto last = std::find(open_.rbegin(), open_.rend(), label);
  if (last != open_.rend()) open_.erase(std::next(last).base());
}

StepPlace OpenLabels::place() const {
  StepPlace place{"step", ""};
  for (const std::string& label : open_) {
    if (const auto phase = phase_of(label); !phase.empty()) place = {std::string(phase), ""};
    if (const auto unit = unit_of(label); !unit.empty()) place.unit = unit;
  }
  return place;
}

}  // namespace trainopt
