#include "advice/rules.h"
#include "recipe/recipe_io.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt {
namespace {

/// Whether every switch that the change turns on does something here.
bool has_effect(const Plan& before, const Plan& after) {
  for (const PlannedSwitch& each : after.switches) {
    const bool was_on = std::any_of(before.switches.begin(), before.switches.end(), [&](const PlannedSwitch& old) {
      return old.name == each.name && old.requested == each.requested;
    });
    if (!was_on && !each.outcome.has_effect) return false;
  }
  return true;
}

/// Whether the change is one, allowed, and does something.
bool works_here(const Situation& s, const Words& change) {
  const auto changed = with_words(s.recipe, change, s.plan.position.ranks);
  if (!changed || recipe_json(*changed) == recipe_json(s.recipe)) return false;
  const auto plan = plan_with(s.recipe, change, s.plan.machine, s.plan.position);
  return plan && has_effect(s.plan, *plan);
}

Exactness exactness_of(const Rule& rule, const Situation& s) {
  return rule.cuts_batch && s.plan.model.layers.batch_norms > 0 ? Exactness::new_math : rule.exactness;
}

}  // namespace

double Situation::share(std::string_view part) const {
  double sum = 0;
  for (const TimePart& each : limit.parts) {
    const bool computes = each.name == "compute" || each.name == "memory bandwidth" || each.name == "launches";
    if (each.name == part || (part == "computing" && computes)) sum += each.share_pct / 100;
  }
  return sum;
}

std::vector<Proposal> propose(const Situation& s) {
  std::vector<Proposal> all;
  if (!s.limit.noise_pct) return all;
  for (const Rule& rule : rules()) {
    const double share = s.share(rule.part);
    for (const Words& change : rule.changes(s)) {
      const double ratio = 1 / (1 - std::min(0.99, share * std::clamp(rule.saved(s, change), 0.0, 1.0)));
      if (100 * (ratio - 1) <= *s.limit.noise_pct || !works_here(s, change)) continue;
      all.push_back({.rule = &rule,
                     .change = change,
                     .exactness = exactness_of(rule, s),
                     .ratio = ratio,
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
