#include "advice/rules.h"
#include "recipe/recipe_io.h"
#include "statistics/verdict.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt {
namespace {

/// Whether every switch that the change turns on does something here, and is expected to pay.
bool may_pay(const Plan& before, const Plan& after) {
  for (const PlannedSwitch& each : after.switches) {
    const bool was_on = std::any_of(before.switches.begin(), before.switches.end(), [&](const PlannedSwitch& old) {
      return old.name == each.name && old.requested == each.requested;
    });
    if (!was_on && (!each.outcome.has_effect || !each.doubt.empty())) return false;
  }
  return true;
}

/// Whether the change is one, allowed, and does something.
bool works_here(const Situation& s, const Words& change) {
  const auto changed = with_words(s.recipe, change, s.plan.position.ranks);
  if (!changed || recipe_json(*changed) == recipe_json(s.recipe)) return false;
  const auto plan = plan_with(s.recipe, change, s.plan.machine, s.plan.position);
  return plan && may_pay(s.plan, *plan);
}

Exactness exactness_of(const Rule& rule, const Situation& s) {
  return rule.cuts_batch && s.plan.model.layers.batch_norms > 0 ? Exactness::new_math : rule.exactness;
}

/// The recipe's number for the first key of a change; null if it has none.
std::optional<double> number_before(const Json& recipe, const Words& change) {
  const std::string key = change.front().substr(0, change.front().find('='));
  const size_t dot = key.find('.');
  const Json& section = recipe.at(key.substr(0, dot));
  const Json value = section.value(key.substr(dot + 1), Json());
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

}  // namespace

double Situation::share(std::string_view part) const {
  if (part == "computing") return share("compute") + share("memory bandwidth") + share("launches");
  if (part == "update" && limit.update_pct > 0) return limit.update_pct / 100;
  double sum = 0;
  for (const TimePart& each : limit.parts) {
    const bool per_step = each.name == "launches" || each.name == "update" || each.name == "exchange";
    const bool is_data = part == "loader" && each.name == "storage";
    if (each.name == part || is_data || (part == "per step" && per_step)) sum += each.share_pct / 100;
  }
  return sum;
}

std::vector<Proposal> propose(const Situation& s) {
  std::vector<Proposal> all;
  const double least = 1 + SequentialOptions().min_effect;
  const Json recipe = recipe_json(s.recipe);
  for (const Rule& rule : rules()) {
    const double share = s.share(rule.part);
    for (const Words& change : rule.changes(s)) {
      const double ratio = 1 / (1 - std::min(0.99, share * std::clamp(rule.saved(s, change), 0.0, 1.0)));
      if (ratio <= least || !works_here(s, change)) continue;
      all.push_back({.rule = &rule,
                     .change = change,
                     .exactness = exactness_of(rule, s),
                     .ratio = ratio,
                     .stands_out = s.limit.noise_pct && 100 * (ratio - 1) > *s.limit.noise_pct,
                     .from = number_before(recipe, change),
                     .evidence = fmt::format("{} is {:.0f} % of the time", rule.part, 100 * share)});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Proposal& a, const Proposal& b) { return a.ratio > b.ratio; });
  return all;
}

std::vector<Proposal> best_of_each_rule(const std::vector<Proposal>& proposals) {
  std::vector<Proposal> best;
  for (const Proposal& each : proposals)
    if (std::none_of(best.begin(), best.end(), [&](const Proposal& other) { return other.rule == each.rule; }))
      best.push_back(each);
  return best;
}

}  // namespace trainopt
