// Hybrid sharding trains what one rank trains, and sends and holds what its formulas say. Ranks are threads that
// believe to be on several machines.
#include "comm/sharding_costs.h"
#include "device/tensor.h"
#include "optimizations/sharding/sharding.h"
#include "recipe/plan_text.h"
#include "support/catch.h"
#include "support/small_gpt2.h"
#include "support/trained_ranks.h"
#include "train/parameter_store.h"

namespace hybrid_sharding_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

constexpr int64_t kGlobalBatch = 16;

Recipe job() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model.name = ModelKind::mlp;
  recipe.model.hidden = {40, 24};
  recipe.data.size = 64;
  recipe.data.batch_size = kGlobalBatch;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 8},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  recipe.optimizer = SgdConfig{.lr = 0.05, .momentum = 0.9};
  recipe.train.max_steps = 6;
  return recipe;
}

Recipe with(ShardingStrategy strategy, Recipe recipe, int64_t ranks) {
  recipe.parallel.sharding_strategy = strategy;
  recipe.data.batch_size = kGlobalBatch / ranks / recipe.train.gradient_accumulation_steps.value_or(1);
  return recipe;
}

Recipe hybrid(Recipe recipe, int64_t ranks) { return with(ShardingStrategy::hybrid, std::move(recipe), ranks); }

RankPosition first_of(int64_t ranks, int64_t machines) { return {.ranks = ranks, .local_ranks = ranks / machines}; }

void check_close(const Trained& got, const Trained& wanted, double tolerance) {
  REQUIRE(got.losses.size() == wanted.losses.size());
  for (size_t i = 0; i < got.losses.size(); ++i) CHECK(got.losses[i] == Approx(wanted.losses[i]).epsilon(tolerance));
  REQUIRE(got.weights.size() == wanted.weights.size());
  for (size_t i = 0; i < got.weights.size(); ++i) {
    INFO(got.weights[i].first);
    CHECK(at::allclose(got.weights[i].second, wanted.weights[i].second, tolerance, tolerance));
  }
}

struct Variant {
  const char* name;
  std::function<void(Recipe&)> change;
  double tolerance = 1e-5;
};

const std::vector<Variant> kVariants = {
    {"plain", [](Recipe&) {}},
    {"tied weights", use_gpt2},
    {"accumulation", [](Recipe& r) { r.train.gradient_accumulation_steps = 2; }},
    {"clipping", [](Recipe& r) { r.train.max_grad_norm = 0.5; }},
    {"fused adam", [](Recipe& r) { r.optimizer = AdamConfig{}, r.optimizations.fused_optimizer = true; }},
    {"amp float16",
     [](Recipe& r) {
       r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 64}};
     },
     2e-2},
    {"gradients sent as bfloat16", [](Recipe& r) { r.parallel.gradient_dtype = WireType::bfloat16; }, 2e-2},
    {"no overlap", [](Recipe& r) { r.parallel.overlap_comm = false; }},
};

}  // namespace

TEST_CASE("hybrid sharding trains like one rank, within 5 % of the formulas") {
  for (const Variant& variant : kVariants) DYNAMIC_SECTION(variant.name) {
      Recipe alone = job();
      variant.change(alone);
      const Recipe recipe = hybrid(alone, 4);
      alone.parallel = {};
      const Trained several = train_as(4, recipe, {}, 2);
      check_close(several, train_as(1, with(ShardingStrategy::none, alone, 1)), variant.tolerance);

      const Plan plan = make_plan(recipe, Machine{.cpu = "test"}, first_of(4, 2));
      const ShardingCosts costs =
          sharding_costs(ShardingStrategy::hybrid, sharded_model(plan, plan.parallel, plan.position));
      const StepTrace& seen = several.trace;
      CHECK(seen.sent_bytes == Approx(costs.sent_bytes).epsilon(0.05));
      CHECK(seen.across_bytes == Approx(costs.across_bytes).epsilon(0.05));
      CHECK(static_cast<double>(seen.parameter_bytes) == Approx(costs.parameter_bytes).epsilon(0.05));
      CHECK(static_cast<double>(seen.gradient_bytes) == Approx(costs.gradient_bytes).epsilon(0.05));
      CHECK(static_cast<double>(seen.optimizer_bytes) == Approx(costs.optimizer_bytes).epsilon(0.05));
      const Receipt& receipt = several.receipts.back().receipt;
      CHECK(receipt.reason == "");
      CHECK_THAT(receipt.observed,
                 ContainsSubstring("sent inside the machine ") && ContainsSubstring("to other machines "));
    }
}

TEST_CASE("on three machines, hybrid sharding trains like one rank") {
  Recipe alone = job();
  alone.data.batch_size = 12;
  Recipe recipe = alone;
  recipe.parallel.sharding_strategy = ShardingStrategy::hybrid;
  recipe.data.batch_size = 2;
  check_close(train_as(6, recipe, {}, 3), train_as(1, alone), 1e-5);
}

TEST_CASE("on one machine, hybrid is zero3") {
  const Trained zero3 = train_as(2, with(ShardingStrategy::zero3, job(), 2));
  const Trained one_machine = train_as(2, hybrid(job(), 2));
  CHECK(one_machine.losses == zero3.losses);
  CHECK(one_machine.trace.sent_bytes == zero3.trace.sent_bytes);
  CHECK_THAT(plan_text(make_plan(hybrid(job(), 2), Machine{.cpu = "test"}, first_of(2, 1))),
             ContainsSubstring("ZeRO-3, which hybrid is on one machine: each of 2 ranks holds a share"));
}

TEST_CASE("hybrid needs several ranks on every machine, as many on each, one machine after the other") {
  const auto plan = [](const RankPosition& position) { make_plan(hybrid(job(), 4), Machine{.cpu = "test"}, position); };
  CHECK_THROWS_WITH(plan({.ranks = 4, .local_ranks = 1}),
                    ContainsSubstring("only 1 of the 4 ranks; use zero3 or none"));
  CHECK_THROWS_WITH(plan({.ranks = 4, .local_ranks = 3}),
                    ContainsSubstring("same number of ranks on every machine, but "
                                      "this one has 3 of 4"));
  CHECK_THROWS_WITH(plan({.rank = 1, .ranks = 4, .local_rank = 0, .local_ranks = 2}),
                    ContainsSubstring("machine after machine, but rank 1 is number 1 of 2 on its machine"));

  // Two machines of two ranks after one of four: each finds only its own in order.
  class Uneven : public Communicator {
   public:
    const RankPosition& position() const override { return position_; }
    std::unique_ptr<Exchange> all_reduce(at::Tensor) override { return nullptr; }
    std::unique_ptr<Exchange> reduce_scatter(at::Tensor, at::Tensor) override { return nullptr; }
    std::unique_ptr<Exchange> all_gather(at::Tensor, at::Tensor) override { return nullptr; }
    std::unique_ptr<Exchange> broadcast(at::Tensor, int64_t) override { return nullptr; }
    std::unique_ptr<Exchange> send(at::Tensor, int64_t) override { return nullptr; }
    std::unique_ptr<Exchange> receive(at::Tensor, int64_t) override { return nullptr; }
    std::unique_ptr<Communicator> among(const std::vector<int64_t>&) override { return nullptr; }
    std::vector<double> gather(std::span<const double>) override { return {4, 4, 4, 4, 2, 2, 2, 2}; }
    Traffic take_traffic() override { return {}; }

   private:
    RankPosition position_{.ranks = 8, .local_ranks = 4};
  } uneven;
  CHECK_THROWS_WITH(connect_machines(uneven), ContainsSubstring("4 on that of rank 0, 2 on that of rank 4"));
}

TEST_CASE("the plan compares what the strategies send to other machines") {
  const ShardedModel model{
      .parameters = 1000, .states = 2, .ranks = 8, .local_ranks = 4, .micro_batches = 3, .wire_bytes_each = 4};
  const ShardingCosts hybrid_costs = sharding_costs(ShardingStrategy::hybrid, model);
  CHECK(hybrid_costs.across_bytes == 2 * 1000 * 0.5);  // a quarter of 4000 bytes, all-reduced over two machines
  CHECK(hybrid_costs.sent_bytes == 1000 + 3 * 3 * 4000 * 0.75);
  CHECK(hybrid_costs.parameter_bytes == 1000);
  CHECK(hybrid_costs.optimizer_bytes == 2000);
  CHECK(sharding_costs(ShardingStrategy::zero3, model).across_bytes == 3 * 3 * 4000 * 0.875 / 4);

  const auto text = [](int64_t machines) {
    return plan_text(make_plan(hybrid(job(), 8), Machine{.cpu = "test"}, first_of(8, machines)));
  };
  CHECK_THAT(text(2), ContainsSubstring("sharding over 8 ranks on 2 machines") &&
                          ContainsSubstring("to other machines") && ContainsSubstring("hybrid ZeRO-3 "));
  CHECK_THAT(text(1), !ContainsSubstring("to other machines") && !ContainsSubstring("hybrid ZeRO-3"));
}

}  // namespace hybrid_sharding_tests
