#include "recipe/choose_workers.h"

#include "base/units.h"
#include "data/loader_bench.h"
#include "recipe/make_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainopt {
namespace {

constexpr double kNearBest = 0.9, kSecondsEach = 0.5;
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

WorkerRate measure(const Plan& plan, int64_t workers) {
  LoaderSettings settings = plan.loader;
  settings.num_workers = workers;
  const auto loader = make_loader(plan.data, settings, {.format = plan.tensor_format});
  const auto result = run_loader_bench(*loader, {.batches = kUnlimited, .seconds = kSecondsEach});
  return {workers, result.samples_per_s};
}

std::string rates_text(std::span<const WorkerRate> rates) {
  std::vector<std::string> texts;
  for (const auto& [workers, rate] : rates)
    texts.push_back(fmt::format("{} with {}", with_commas(std::llround(rate)), workers));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

std::vector<int64_t> worker_candidates(int64_t cores) {
  std::vector<int64_t> all;
  for (int64_t workers = 1; workers < cores; workers *= 2) all.push_back(workers);
  all.push_back(std::max<int64_t>(1, cores));
  return all;
}

int64_t fewest_near_best(std::span<const WorkerRate> rates) {
  const auto best = std::max_element(rates.begin(), rates.end(), [](const WorkerRate& a, const WorkerRate& b) {
    return a.samples_per_s < b.samples_per_s;
  });
  int64_t fewest = best->workers;
  for (const auto& [workers, rate] : rates)
    if (rate >= kNearBest * best->samples_per_s) fewest = std::min(fewest, workers);
  return fewest;
}

Recipe with_workers_chosen(const Recipe& recipe, const Machine& machine, const RankPosition& position,
                           std::vector<std::string>& notes) {
  if (!recipe.data.num_workers.is_auto()) return recipe;
  const Plan plan = make_plan(recipe, machine, position);
  Recipe chosen = recipe;
  if (!plan.data.dataset) {
    chosen.data.num_workers = 0;
    notes.push_back("data.num_workers: auto is 0, because synthetic batches need no loader");
  } else if (plan.data.device_dataset) {
    chosen.data.num_workers = plan.machine.cores;
    notes.push_back("data.num_workers: auto is one per core, to read the data set before the first step");
  } else {
    std::vector<WorkerRate> rates;
    measure(plan, plan.machine.cores);  // so that the first candidate is not the only one that reads from the disk
    for (const int64_t workers : worker_candidates(plan.machine.cores)) rates.push_back(measure(plan, workers));
    const int64_t workers = fewest_near_best(rates);
    chosen.data.num_workers = workers;
    notes.push_back(fmt::format("data.num_workers: auto chose {}; samples/s of the loader alone, by threads: {}",
                                workers, rates_text(rates)));
  }
  return chosen;
}

}  // namespace trainopt
