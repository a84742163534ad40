#include "recipe/accumulation.h"

#include <algorithm>

namespace trainopt {

int64_t ranks_that_share_data(const Recipe& recipe, int64_t ranks) {
  const int64_t stages = recipe.parallel.pipeline.stages;
  return ranks % stages == 0 ? ranks / stages : ranks;
}

std::variant<int64_t, RecipeProblem> accumulation(const Recipe& recipe, int64_t ranks) {
  const int64_t batch_size = recipe.data.batch_size, combined = ranks * batch_size;
  const auto& global = recipe.data.global_batch_size;
  const auto& requested = recipe.train.gradient_accumulation_steps;
  if (!global) return requested.value_or(1);
  if (requested && *requested * combined != *global)
    return RecipeProblem{
        "data.global_batch_size",
        fmt::format("must equal ranks × train.gradient_accumulation_steps × data.batch_size: {}, {} × {} × {}", *global,
                    ranks, *requested, batch_size)};
  if (*global % combined != 0) {
    const int64_t near = std::max<int64_t>(1, (*global + combined / 2) / combined) * combined;
    return RecipeProblem{"data.global_batch_size",
                         fmt::format("must be a multiple of ranks × data.batch_size, such as {}: {}, {} × {}", near,
                                     *global, ranks, batch_size)};
  }
  return *global / combined;
}

}  // namespace trainopt
