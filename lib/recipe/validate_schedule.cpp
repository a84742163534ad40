#include "recipe/validate_schedule.h"

#include "train/optimizer/optimizer.h"

#include <algorithm>
#include <functional>

namespace trainopt {
namespace {

using Problems = std::vector<RecipeProblem>;

void check_end(const Recipe& recipe, Problems& problems) {
  const SchedulerConfig& scheduler = recipe.scheduler;
  const bool open_end = recipe.train.max_time && !recipe.train.max_steps && !recipe.train.epochs;
  const ScheduleEnd* end = end_of(scheduler);
  if (end != nullptr && !end->total_steps && open_end)
    problems.push_back(
        {"scheduler.total_steps",
         fmt::format("{} needs this, train.max_steps or train.epochs: with only train.max_time its end is unknown",
                     name_of(scheduler))});
  if (std::holds_alternative<ConstantSchedule>(scheduler.schedule) && scheduler.interval == ScheduleInterval::epoch)
    problems.push_back(
        {"scheduler.interval", "a constant rate changes neither by steps nor by epochs; remove this key"});
}

bool sets_max_lr(const SchedulerConfig& scheduler) {
  return std::visit(
      [](const auto& c) {
        if constexpr (requires { c.max_lr; }) return c.max_lr.has_value();
        return false;
      },
      scheduler.schedule);
}

/// Whether a momentum to cycle is given although none is cycled.
bool sets_unused_momentum(const SchedulerConfig& scheduler) {
  return std::visit(
      []<class Config>(const Config& c) {
        if constexpr (requires { c.momentum; })
          return !c.momentum.cycle_momentum && (c.momentum.base_momentum != Config().momentum.base_momentum ||
                                                c.momentum.max_momentum != Config().momentum.max_momentum);
        return false;
      },
      scheduler.schedule);
}

/// Rates that replace or bound that of the optimizer.
void check_rates(const Recipe& recipe, Problems& problems) {
  const bool scaled = common_of(recipe.optimizer).lr_scaling != LrScaling::none;
  if (scaled && sets_max_lr(recipe.scheduler))
    problems.push_back({"scheduler.max_lr",
                        "optimizer.lr_scaling scales optimizer.lr, which this replaces; set optimizer.lr and remove "
                        "this key"});
  if (!scaled) check_lowest_rate(recipe.scheduler, recipe.optimizer, problems);
  if (const auto* c = std::get_if<CyclicSchedule>(&recipe.scheduler.schedule)) {
    if (c->mode == CyclicMode::exp_range && c->gamma == 1)
      problems.push_back({"scheduler.gamma", "mode exp_range needs this below 1"});
    if (c->mode != CyclicMode::exp_range && c->gamma != 1)
      problems.push_back({"scheduler.gamma", "only mode exp_range uses this; remove this key"});
  }
}

void check_momentum(const Recipe& recipe, Problems& problems) {
  const CycledMomentum* cycled = cycled_momentum(recipe.scheduler);
  if (cycled == nullptr) {
    if (sets_unused_momentum(recipe.scheduler))
      problems.push_back({"scheduler.cycle_momentum", "base_momentum and max_momentum need this to be true"});
    return;
  }
  if (cycled->base_momentum > cycled->max_momentum)
    problems.push_back({"scheduler.base_momentum", fmt::format("must not be above max_momentum: {}, {}",
                                                               cycled->base_momentum, cycled->max_momentum)});
  if (!momentum_key(recipe.optimizer))
    problems.push_back({"scheduler.cycle_momentum",
                        "this optimizer has no momentum to move; set optimizer.momentum, or this to false"});
}

void check_milestones(const std::vector<int64_t>& milestones, Problems& problems) {
  if (milestones.empty())
    problems.push_back({"scheduler.milestones", "multistep needs at least one"});
  else if (std::adjacent_find(milestones.begin(), milestones.end(), std::greater_equal<>()) != milestones.end())
    problems.push_back({"scheduler.milestones", "must be in rising order"});
}

}  // namespace

void check_lowest_rate(const SchedulerConfig& scheduler, const OptimizerConfig& optimizer, Problems& problems) {
  const double rate = base_learning_rate(optimizer);
  const std::string of_optimizer =
      common_of(optimizer).lr_scaling == LrScaling::none ? "optimizer.lr" : "optimizer.lr, as lr_scaling scales it";
  const auto refuse = [&](const char* key, const std::string& limit, double lowest, double highest) {
    if (lowest > highest)
      problems.push_back({key, fmt::format("must not be above {}: {}, {}", limit, lowest, highest)});
  };
  std::visit(
      [&](const auto& c) {
        if constexpr (requires { c.eta_min; }) refuse("scheduler.eta_min", of_optimizer, c.eta_min, rate);
        if constexpr (requires { c.base_lr; })
          refuse("scheduler.base_lr", c.max_lr ? "max_lr" : of_optimizer + ", the highest rate", c.base_lr.value_or(0),
                 c.max_lr.value_or(rate));
      },
      scheduler.schedule);
}

void check_schedule(const Recipe& recipe, Problems& problems) {
  check_end(recipe, problems);
  check_rates(recipe, problems);
  check_momentum(recipe, problems);
  if (const auto* c = std::get_if<MultiStepSchedule>(&recipe.scheduler.schedule))
    check_milestones(c->milestones, problems);
}

}  // namespace trainopt
