// data.num_workers: auto. Measures how fast the loader alone is with different numbers of threads.
#pragma once

#include "recipe/recipe.h"
#include "train/machine.h"
#include "train/plan.h"

#include <span>
#include <string>
#include <vector>

namespace trainopt {

/// What the loader alone delivers with so many threads.
struct WorkerRate {
  int64_t workers;
  double samples_per_s;
};

/// 1, 2, 4, … and `cores`.
std::vector<int64_t> worker_candidates(int64_t cores);

/// The fewest threads that reach 90 % of the highest rate: more of them would only take cores from the step.
/// `rates` must not be empty.
int64_t fewest_near_best(std::span<const WorkerRate> rates);

/// A recipe with a number for data.num_workers. Anything but `auto` is left as it is. Otherwise the first batches are
/// loaded with each of worker_candidates(), for half a second each, after they were read once: files come from the page
/// cache. Where no batch is loaded during training, nothing is measured. `notes` receives what was chosen and why.
/// Throws UserError as make_plan() does, and (data) for a sample that cannot be read.
Recipe with_workers_chosen(const Recipe& recipe, const Machine& machine, const RankPosition& position,
                           std::vector<std::string>& notes);

}  // namespace trainopt
