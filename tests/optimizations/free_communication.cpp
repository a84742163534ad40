// One rank of several, alone in its process, trains with exchanges that return at once. With a real communicator the
// first exchange would wait for ranks that do not exist.
#include "comm/communicator.h"
#include "comm/sharding_costs.h"
#include "device/tensor.h"
#include "recipe/make_plan.h"
#include "support/catch.h"
#include "support/plans.h"

#include <cmath>

namespace free_communication_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

Recipe mlp_recipe_of_two() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model.name = ModelKind::mlp;
  recipe.model.hidden = {40, 24};
  recipe.data.size = 64;
  recipe.data.batch_size = 4;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 8},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  recipe.train.gradient_accumulation_steps = 2;
  recipe.train.max_grad_norm = 1;
  recipe.train.max_steps = 4;
  return recipe;
}

/// Trains as each of two ranks in turn: finite losses, finite weights, nothing sent.
void check_trains_alone(const Recipe& recipe) {
  for (const int64_t rank : {0, 1}) {
    INFO("rank " << rank);
    const Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2},
                                {.rank = rank, .ranks = 2, .local_rank = rank, .local_ranks = 2});
    Rows rows;
    Trainer trainer(plan, {}, rows, never_stopped(), {}, make_free_communicator(plan.position));
    trainer.run();
    REQUIRE(rows.rows.size() == static_cast<size_t>(*recipe.train.max_steps));
    for (const StepRecord& row : rows.rows) {
      CHECK(std::isfinite(*row[Metric::loss]));
      CHECK(*row[Metric::loss] > 0);
      CHECK(row.ranks.size() == 2);
    }
    CHECK(trainer.outcome().trace.sent_bytes == 0);
    const NamedTensors weights = trainer.weights();
    CHECK(weights.empty() == (rank != 0));
    for (const auto& [name, tensor] : weights) CHECK(at::isfinite(tensor).all().item<bool>());
  }
}

}  // namespace

TEST_CASE("with free communication, a rank trains without the others, with every strategy") {
  for (const auto strategy :
       {ShardingStrategy::none, ShardingStrategy::zero1, ShardingStrategy::zero2, ShardingStrategy::zero3})
    DYNAMIC_SECTION(strategy_name(strategy)) {
      Recipe recipe = mlp_recipe_of_two();
      recipe.parallel.sharding_strategy = strategy;
      check_trains_alone(recipe);
      recipe.parallel.overlap_comm = false;
      recipe.parallel.bucket_cap_mb = 0.001;
      check_trains_alone(recipe);
    }
}

TEST_CASE("with free communication, a rank trains without the others: stale updates, replica checks") {
  Recipe recipe = mlp_recipe_of_two();
  recipe.parallel.check_replicas_every = 2;
  check_trains_alone(recipe);
  recipe.parallel = {};
  recipe.parallel.async_updates.staleness = 1;
  check_trains_alone(recipe);
}

TEST_CASE("with free communication, a rank trains without the others: synchronised batch-norm") {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model.stem = StemKind::cifar;
  recipe.data.size = 32;
  recipe.data.batch_size = 4;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 16},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  recipe.train.max_steps = 2;
  recipe.parallel.sync_batch_norm = true;
  recipe.parallel.sharding_strategy = ShardingStrategy::zero3;
  check_trains_alone(recipe);
}

}  // namespace free_communication_tests
