#include "recipe/schedule_picture.h"

#include "base/bar_plot.h"
#include "base/counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

constexpr int64_t kColumns = 66;
constexpr int64_t kStepsWithoutLimit = 1000;
constexpr int64_t kMostPoints = 10'000;
/// A column of a plot stands for at most so many steps that are looked at.
constexpr int64_t kSamplesPerColumn = 64;

int64_t steps_shown(const Plan& plan) { return plan.steps.value_or(kStepsWithoutLimit); }

/// The `index`-th of `count` steps from `first` to `last`, evenly spaced.
int64_t step_at(int64_t index, int64_t count, int64_t first, int64_t last) {
  if (count <= 1) return first;
  const double part = static_cast<double>(index) / static_cast<double>(count - 1);
  return first + static_cast<int64_t>(std::llround(part * static_cast<double>(last - first)));
}

/// The highest value of each column's steps. `value`: of a step.
template <class Value>
std::vector<double> columns_of(int64_t steps, Value value) {
  const int64_t count = std::min(kColumns, steps);
  std::vector<double> columns;
  for (int64_t column = 0; column < count; ++column) {
    const int64_t first = column * steps / count + 1, last = (column + 1) * steps / count;
    const int64_t samples = std::min(kSamplesPerColumn, last - first + 1);
    columns.push_back(0);
    for (int64_t i = 0; i < samples; ++i)
      columns.back() = std::max(columns.back(), value(step_at(i, samples, first, last)));
  }
  return columns;
}

std::string axis(int64_t width, int64_t steps) {
  const std::string last = with_commas(steps);
  std::string line = "           └";
  for (int64_t i = 0; i < width; ++i) line += "─";
  const auto gap = std::max<int64_t>(1, width - 6 - static_cast<int64_t>(last.size()));
  return line + "\n            step 1" + std::string(static_cast<size_t>(gap), ' ') + last + "\n";
}

}  // namespace

std::string schedule_picture(const Plan& plan) {
  const Schedule schedule = plan.schedule();
  const int64_t steps = steps_shown(plan);
  const auto rates = columns_of(steps, [&](int64_t step) { return schedule.at(step).learning_rate; });
  std::string text = "learning rate\n" + bar_plot(rates, 0, 10);
  if (const CycledMomentum* cycled = cycled_momentum(plan.scheduler)) {
    const auto momenta = columns_of(steps, [&](int64_t step) { return *schedule.at(step).momentum; });
    // Half as far below its lowest value as it moves, so that this is seen too.
    const double range = cycled->max_momentum - cycled->base_momentum;
    text += "momentum\n" + bar_plot(momenta, std::max(0.0, cycled->base_momentum - range / 2), 4);
  }
  return text + axis(static_cast<int64_t>(rates.size()), steps) +
         (plan.steps ? "" : "the run has no limit on steps: the first of them\n");
}

Json schedule_json(const Plan& plan) {
  const Schedule schedule = plan.schedule();
  const int64_t steps = steps_shown(plan), count = std::min(steps, kMostPoints);
  Json numbers = Json::array(), rates = Json::array(), momenta = Json::array();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t step = step_at(i, count, 1, steps);
    const auto [rate, momentum] = schedule.at(step);
    numbers.push_back(step);
    rates.push_back(rate);
    if (momentum) momenta.push_back(*momentum);
  }
  return {{"step", numbers}, {"learning_rate", rates}, {"momentum", momenta.empty() ? Json() : momenta}};
}

}  // namespace trainopt
