// Every sharding strategy trains what one rank trains. Ranks are threads.
#include "comm/sharding_costs.h"
#include "debugging/wait_finder.h"
#include "device/tensor.h"
#include "support/catch.h"
#include "support/small_gpt2.h"
#include "support/trained_ranks.h"

namespace sharding_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

constexpr int64_t kGlobalBatch = 16;

const std::vector<ShardingStrategy> kStrategies{ShardingStrategy::none, ShardingStrategy::zero1,
                                                ShardingStrategy::zero2, ShardingStrategy::zero3};

/// No batch-norm and no dropout: the same samples give the same losses however ranks share them.
Recipe mlp_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model.name = ModelKind::mlp;
  recipe.model.hidden = {40, 24};
  recipe.data.size = 64;
  recipe.data.batch_size = kGlobalBatch;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 8},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  recipe.optimizer = SgdConfig{.lr = 0.05};
  recipe.train.max_steps = 20;
  recipe.debug.find_syncs = true;
  return recipe;
}

/// Tied weights: the embedding is also the last layer.
Recipe gpt2_recipe() {
  Recipe recipe = mlp_recipe();
  use_gpt2(recipe);
  return recipe;
}

Recipe for_ranks(Recipe recipe, int64_t ranks) {
  recipe.data.batch_size = kGlobalBatch / ranks / recipe.train.gradient_accumulation_steps.value_or(1);
  return recipe;
}

void check_close(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(wanted[i]).epsilon(tolerance));
}

void check_close(const NamedTensors& got, const NamedTensors& wanted, double tolerance) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(got[i].first);
    CHECK(got[i].first == wanted[i].first);
    CHECK(at::allclose(got[i].second.to(at::kFloat), wanted[i].second.to(at::kFloat), tolerance, tolerance));
  }
}

Plan plan_of(const Recipe& job, int64_t ranks) {
  return make_plan(for_ranks(job, ranks), Machine{.cpu = "test", .cores = 2}, {.ranks = ranks});
}

}  // namespace

TEST_CASE("1, 2 and 4 ranks train the same with every strategy") {
  const bool text = GENERATE(false, true);
  const Recipe job = text ? gpt2_recipe() : mlp_recipe();
  static const Trained alone[] = {train_as(1, mlp_recipe()), train_as(1, gpt2_recipe())};
  const Trained& one = alone[text];
  const int64_t ranks = GENERATE(2, 4);
  for (const auto strategy : kStrategies) {
    Recipe recipe = for_ranks(job, ranks);
    recipe.parallel.sharding_strategy = strategy;
    DYNAMIC_SECTION(strategy_name(strategy) << " on " << ranks << (text ? ", tied weights" : "")) {
      const Trained several = train_as(ranks, recipe);
      check_close(several.losses, one.losses, 1e-5);
      check_close(several.weights, one.weights, 1e-5);
      REQUIRE(several.receipts.back().name == "parallel.sharding_strategy");
      INFO(hidden_waits_text(several.trace.hidden_waits.value(), 2, /*on_cpu=*/true));
      CHECK(several.trace.hidden_waits->empty());
      CHECK(several.receipts.back().receipt.reason == "");  // bytes sent and held match the formulas
    }
  }
}

namespace {

struct Variant {
  std::string name;
  std::function<void(Recipe&)> change;
  double tolerance = 1e-5;
};

const std::vector<Variant> kVariants = {
    {"accumulation", [](Recipe& r) { r.train.gradient_accumulation_steps = 2; }},
    {"clipping", [](Recipe& r) { r.train.max_grad_norm = 0.5; }},
    {"vision transformer",
     [](Recipe& r) { r.model = {.name = ModelKind::vit, .patch = 4, .layers = 2, .heads = 2, .width = 24}; }},
    {"adamw", [](Recipe& r) { r.optimizer = AdamWConfig{}; }},
    {"lamb, which takes norms of whole parameters",
     [](Recipe& r) { r.optimizer = LambConfig{.lr = 0.01, .weight_decay = 0.1, .common = {.no_decay = {"bias"}}}; }},
    {"lars and clipping by value",
     [](Recipe& r) {
       r.optimizer = LarsConfig{.weight_decay = 0.01, .always_adapt = true};
       r.train.clip_value = 0.01;
     }},
    {"muon, which gathers matrices",
     [](Recipe& r) {
       r.optimizer = MuonConfig{.lr = 0.02, .weight_decay = 0.1, .ns_dtype = MuonType::float32, .adamw_lr = 0.002};
     }},
    {"fused lamb",
     [](Recipe& r) {
       r.optimizer = LambConfig{.lr = 0.01, .weight_decay = 0.1, .common = {.no_decay = {"bias"}}};
       r.optimizations.fused_optimizer = true;
     }},
    {"groups and layer_decay",
     [](Recipe& r) {
       r.optimizer =
           SgdConfig{.lr = 0.05, .common = {.groups = {{.parameters = {"bias"}, .lr = 0.2}}, .layer_decay = 0.7}};
     }},
    {"ema", [](Recipe& r) { r.average = EmaConfig{.decay = 0.9}; }},
    {"one cycle", [](Recipe& r) { r.scheduler.schedule = OneCycleSchedule{.pct_start = 0.5}; }},
    {"no_decay",
     [](Recipe& r) {
       r.optimizer = SgdConfig{.lr = 0.05, .weight_decay = 0.3, .common = {.no_decay = {"bias", "layers.0"}}};
     }},
    {"fused no_decay",
     [](Recipe& r) {
       AdamWConfig adamw;
       adamw.weight_decay = 0.3;
       adamw.common.no_decay = {"bias", "layers.0"};
       r.optimizer = adamw;
       r.optimizations.fused_optimizer = true;
     }},
    {"fused sgd", [](Recipe& r) { r.optimizations.fused_optimizer = true; }},
    {"fused adam", [](Recipe& r) { r.optimizer = AdamConfig{}, r.optimizations.fused_optimizer = true; }},
    {"set_to_none", [](Recipe& r) { r.optimizations.set_to_none = true; }},
    {"amp", [](Recipe& r) { r.optimizations.amp.on = true; }, 2e-2},
    {"amp float16",
     [](Recipe& r) {
       r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 64}};
     },
     2e-2},
    {"skipping non-finite steps", [](Recipe& r) { r.train.on_nonfinite = OnNonfinite::skip; }},
    {"tied weights", use_gpt2},
    {"tied weights, amp", [](Recipe& r) { use_gpt2(r), r.optimizations.amp.on = true; }, 2e-2},
    {"tied weights, units by size",
     [](Recipe& r) {
       use_gpt2(r);
       r.parallel.wrap = {.policy = WrapPolicy::size, .min_parameters = 9000};
     }},
    {"no overlap", [](Recipe& r) { r.parallel.overlap_comm = false; }},
    {"small buckets", [](Recipe& r) { r.parallel.bucket_cap_mb = 0.001; }},
    {"units by size", [](Recipe& r) { r.parallel.wrap = {.policy = WrapPolicy::size, .min_parameters = 9000}; }},
};

}  // namespace

TEST_CASE("every strategy works with the other options of a step") {
  for (const Variant& variant : kVariants) DYNAMIC_SECTION(variant.name) {
      Recipe recipe = mlp_recipe();
      recipe.train.max_steps = 6;
      variant.change(recipe);
      Recipe alone = recipe;
      alone.parallel = {};
      const Trained one = train_as(1, for_ranks(alone, 1));
      for (const auto strategy : kStrategies) {
        recipe.parallel.sharding_strategy = strategy;
        INFO(strategy_name(strategy));
        check_close(train_as(2, for_ranks(recipe, 2)).losses, one.losses, variant.tolerance);
      }
    }
}

TEST_CASE("set_to_none has no effect with strategies that keep gradients in buffers") {
  Recipe recipe = mlp_recipe();
  recipe.optimizations.set_to_none = true;
  for (const auto strategy : kStrategies) {
    recipe.parallel.sharding_strategy = strategy;
    for (const int64_t ranks : {1, 2}) {
      INFO(strategy_name(strategy) << " " << ranks);
      const Plan plan = plan_of(recipe, ranks);
      const auto planned = std::find_if(plan.switches.begin(), plan.switches.end(),
                                        [](const PlannedSwitch& one) { return one.name == "set_to_none"; });
      REQUIRE(planned != plan.switches.end());
      CHECK(planned->outcome.has_effect == (ranks == 1 || strategy == ShardingStrategy::none));
    }
  }
  recipe.parallel = {};
  recipe.parallel.async_updates.staleness = 1;
  const Plan stale = plan_of(recipe, 2);
  CHECK(std::none_of(stale.switches.begin(), stale.switches.end(),
                     [](const PlannedSwitch& one) { return one.name == "set_to_none" && one.outcome.has_effect; }));
}

TEST_CASE("with synchronised batch-norm, several ranks train a ResNet as one rank does") {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model.stem = StemKind::cifar;
  recipe.data.size = 47;  // an epoch's last step has 15 samples: 8 on one rank and 7 on the other
  recipe.data.drop_last = false;
  recipe.data.batch_size = 16;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 16},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  recipe.train.max_steps = 5;
  // At the usual learning rate, each step of a fresh ResNet with batch-norm amplifies rounding tenfold: even one rank
  // differs from itself that much on a CPU that sums in another order. A small learning rate keeps rounding small.
  recipe.optimizer = SgdConfig{.lr = 1e-4, .momentum = 0};
  static const Trained one = train_as(1, recipe);
  recipe.data.batch_size = 8;
  recipe.parallel.sync_batch_norm = true;
  const bool channels_last = GENERATE(false, true);
  recipe.optimizations.channels_last = channels_last;
  for (const auto strategy : {ShardingStrategy::none, ShardingStrategy::zero3}) {
    recipe.parallel.sharding_strategy = strategy;
    INFO(strategy_name(strategy));
    const Trained two = train_as(2, recipe);
    check_close(two.losses, one.losses, 1e-5);
    check_close(two.weights, one.weights, 1e-3);
  }
  // Without it each rank normalises by its own samples, and training differs.
  recipe.parallel = {};
  CHECK(train_as(2, recipe).losses.front() != Approx(one.losses.front()).epsilon(1e-3));
}

TEST_CASE("synchronised batch-norm conflicts with another replacement of batch-norm") {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.parallel.sync_batch_norm = true;
  CHECK(plan_of(recipe, 2).operations.batch_norm.describe() == "statistics over all ranks (parallel.sync_batch_norm)");
  CHECK(plan_of(recipe, 1).operations.batch_norm.is_plain());
  recipe.optimizations.fused_kernels = true;
  CHECK_THROWS_WITH(plan_of(recipe, 2),
                    ContainsSubstring("fused_kernels and parallel.sync_batch_norm both replace the batch-norm"));
}

TEST_CASE("stale updates start like one rank, then differ, and do not depend on the number of ranks") {
  Recipe recipe = for_ranks(mlp_recipe(), 2);
  recipe.parallel.async_updates.staleness = 1;
  recipe.optimizer = SgdConfig{.lr = 0.05, .momentum = 0};
  const Trained stale = train_as(2, recipe);
  Recipe usual = mlp_recipe();
  usual.optimizer = recipe.optimizer;
  const Trained one = train_as(1, usual);
  CHECK(stale.losses[0] == Approx(one.losses[0]).epsilon(1e-6));  // same weights, no update yet
  CHECK(stale.losses[2] != Approx(one.losses[2]).epsilon(1e-6));
  CHECK(stale.losses.back() < stale.losses.front());
  CHECK(stale.receipts.back().receipt.reason == "");
  // Two ranks and four see the same sums.
  Recipe four = for_ranks(mlp_recipe(), 4);
  four.parallel = recipe.parallel;
  four.optimizer = recipe.optimizer;
  check_close(train_as(4, four).losses, stale.losses, 1e-5);
}

TEST_CASE("the cost formulas of the strategies") {
  const ShardedModel model{.parameters = 1000, .states = 2, .ranks = 4, .micro_batches = 3, .wire_bytes_each = 4};
  const auto costs = [&](ShardingStrategy strategy) { return sharding_costs(strategy, model); };
  CHECK(costs(ShardingStrategy::none).sent_bytes == 2 * 4000 * 0.75);
  CHECK(costs(ShardingStrategy::none).optimizer_bytes == 8000);
  CHECK(costs(ShardingStrategy::zero1).sent_bytes == 2 * 4000 * 0.75);
  CHECK(costs(ShardingStrategy::zero1).optimizer_bytes == 2000);
  CHECK(costs(ShardingStrategy::zero1).gradient_bytes == 4000);
  CHECK(costs(ShardingStrategy::zero2).sent_bytes == (3 + 1) * 4000 * 0.75);
  CHECK(costs(ShardingStrategy::zero2).gradient_bytes == 1000);
  CHECK(costs(ShardingStrategy::zero3).sent_bytes == 3 * 3 * 4000 * 0.75);
  CHECK(costs(ShardingStrategy::zero3).parameter_bytes == 1000);

  ShardedModel narrow = model;
  narrow.bfloat16_parameters = 900;
  const ShardingCosts of_narrow = sharding_costs(ShardingStrategy::none, narrow);
  CHECK(of_narrow.parameter_bytes == 900 * 2 + 100 * 4);
  CHECK(of_narrow.gradient_bytes == of_narrow.parameter_bytes);
  CHECK(of_narrow.optimizer_bytes == 8000);
  CHECK(of_narrow.sent_bytes == 2 * of_narrow.parameter_bytes * 0.75);
  narrow.wire_bytes_each = 2;
  CHECK(sharding_costs(ShardingStrategy::none, narrow).sent_bytes == 2 * 2000 * 0.75);
}

}  // namespace sharding_tests
