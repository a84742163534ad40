#include "tune/memory_advice.h"

#include "recipe/make_plan.h"
#include "recipe/memory_remedies.h"
#include "train/memory_forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>

namespace trainopt {
namespace {

std::optional<int64_t> forecast_bytes(const Plan& plan) {
  try {
    return forecast_memory(plan).breakdown.total();
  } catch (const std::exception&) {  // named recovery: what cannot run is no proposal
    return std::nullopt;
  }
}

/// The strongest change of training among those of the words' switches.
Exactness exactness_of(const Words& words) {
  auto strongest = Exactness::same_bits;
  for (const CatalogueEntry& entry : catalogue())
    for (const std::string& word : words)
      if (word.starts_with(entry.key + "=")) strongest = std::max(strongest, entry.info.exactness);
  return strongest;
}

/// What the changed plan says of the switch that the last word turns on.
std::string text_of_switch(const Words& words, const Plan& changed) {
  const std::string key = words.back().substr(0, words.back().find('='));
  for (const CatalogueEntry& entry : catalogue())
    for (const PlannedSwitch& each : changed.switches)
      if (entry.key == key && each.name == entry.info.name) return fmt::format("{}: {}", each.name, each.outcome.text);
  return key;
}

}  // namespace

std::vector<MemoryProposal> propose_less_memory(const Recipe& recipe, const Plan& plan) {
  const auto forecast = forecast_bytes(plan);
  if (!forecast) return {};
  const int64_t before = *forecast;
  std::vector<MemoryProposal> all;
  const auto consider = [&](const Words& words, Exactness exactness, std::optional<std::string> what) {
    const auto changed = plan_with(recipe, words, plan.machine, plan.position);
    const auto bytes = changed ? forecast_bytes(*changed) : std::nullopt;
    if (bytes && *bytes < before)
      all.push_back({.what = what ? *what : text_of_switch(words, *changed),
                     .change = words,
                     .exactness = exactness,
                     .bytes_before = before,
                     .bytes_after = *bytes});
  };
  for (const Words& words : memory_switches(recipe, plan)) consider(words, exactness_of(words), std::nullopt);
  if (const Words words = in_more_micro_batches(recipe, plan, 2); !words.empty())
    consider(words, plan.model.layers.all_batch_norms() > 0 ? Exactness::new_math : Exactness::same_math,
             "the same batch in more micro-batches");
  std::stable_sort(all.begin(), all.end(),
                   [](const MemoryProposal& a, const MemoryProposal& b) { return a.saved_bytes() > b.saved_bytes(); });
  return all;
}

}  // namespace trainopt
