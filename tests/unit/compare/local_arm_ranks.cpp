// Arms of a job with several ranks, each rank a thread: what they write is what one rank with the same global batch
// writes.
#include "comm/sharding_costs.h"
#include "compare/arms/local_arm.h"
#include "device/tensor.h"
#include "recipe/make_plan.h"
#include "support/catch.h"
#include "support/plans.h"
#include "support/ranks.h"

#include <map>

using namespace trainopt;
using namespace trainopt::test;

namespace {

constexpr int64_t kGlobalBatch = 16;
const Machine kMachine{.cpu = "test", .cores = 1};

/// No batch-norm and no dropout: the same samples give the same gradients however ranks share them.
Recipe mlp_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model.name = ModelKind::mlp;
  recipe.model.hidden = {40, 24};
  recipe.data.size = 64;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 8},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  recipe.optimizer = SgdConfig{.lr = 0.05, .weight_decay = 1e-3};
  recipe.train.gradient_accumulation_steps = 2;
  recipe.train.max_grad_norm = 0.5;  // the dumped gradients are those before clipping
  recipe.train.max_steps = 1;        // an arm's plan has none
  return recipe;
}

Plan arm_plan_of(Recipe recipe, const RankPosition& position, bool perturbed) {
  recipe.data.batch_size = kGlobalBatch / position.ranks / 2;
  Plan plan = make_plan(recipe, kMachine, position);
  plan.steps.reset();
  if (perturbed) begin_perturbed(plan);
  return plan;
}

struct RankResult {
  std::vector<double> losses;
  ArmFacts facts;
  StepTrace trace;
};

/// Takes the first turn of an arm on two ranks, with a folder for each.
std::array<RankResult, 2> two_ranks(const Recipe& recipe, bool perturbed, const std::filesystem::path& folder) {
  std::array<RankResult, 2> results;
  // Set once for all threads, so that each trainer's own guard finds nothing to change in their shared state.
  const BackendGuard settings(arm_plan_of(recipe, {.ranks = 2, .local_ranks = 2}, false).backend);
  as_ranks(2, [&](Job&, Communicator& communicator) {
    const RankPosition& position = communicator.position();
    const auto mine = folder / std::to_string(position.rank);
    LocalArm arm(arm_plan_of(recipe, position, perturbed), mine,
                 {.communicator = std::shared_ptr<Communicator>(&communicator, [](Communicator*) {})});
    const Turn turn = arm.turn(8);
    results[static_cast<size_t>(position.rank)] = {turn.losses, arm.facts(), arm.trainer().outcome().trace};
  });
  return results;
}

/// `share`: of a tensor's largest value, how far its values may be apart.
void check_same(const NamedTensors& got, const NamedTensors& wanted, double share) {
  const std::map<std::string, at::Tensor> found(got.begin(), got.end());
  CHECK(found.size() == wanted.size());
  for (const auto& [name, tensor] : wanted) {
    INFO(name);
    REQUIRE(found.contains(name));
    CHECK(found.at(name).sizes() == tensor.sizes());
    CHECK(at::allclose(found.at(name), tensor, 1e-4, 1e-6 + share * tensor.abs().max().item<double>()));
  }
}

bool equal(const NamedTensors& a, const NamedTensors& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i].second, b[i].second)) return false;
  return true;
}

}  // namespace

TEST_CASE("with every strategy, two ranks write the gradients and the update that one rank writes") {
  const bool perturbed = GENERATE(false, true);
  const TemporaryFolder folder;
  LocalArm one(arm_plan_of(mlp_recipe(), {}, perturbed), folder / "one");
  const Turn of_one = one.turn(8);
  const NamedTensors gradients = load_tensors(gradients_file(folder / "one")),
                     update = load_tensors(update_file(folder / "one"));
  REQUIRE(gradients.size() == 6);
  REQUIRE(update.size() == 7);  // and kAlongWeights
  for (const auto strategy :
       {ShardingStrategy::none, ShardingStrategy::zero1, ShardingStrategy::zero2, ShardingStrategy::zero3}) {
    Recipe recipe = mlp_recipe();
    recipe.parallel.sharding_strategy = strategy;
    INFO(strategy_name(strategy) << (perturbed ? ", perturbed" : ""));
    // Each rank perturbs the gradients that it holds, so shards are perturbed otherwise than whole gradients.
    const double share = perturbed && strategy != ShardingStrategy::none ? 4 * kPerturbation : 0;
    const auto two = folder / strategy_name(strategy);
    const auto ranks = two_ranks(recipe, perturbed, two);
    REQUIRE(ranks[0].losses.size() == of_one.losses.size());
    for (size_t i = 0; i < of_one.losses.size(); ++i)
      CHECK(ranks[0].losses[i] == Approx(of_one.losses[i]).epsilon(share > 0 ? 1e-3 : 1e-5));
    for (const RankResult& rank : ranks) {
      REQUIRE(rank.facts.ranks.size() == 1);
      CHECK(rank.facts.ranks[0].sent_mib == rank.trace.sent_bytes / 0x1p20);
      CHECK(rank.facts.ranks[0].sent_mib > 0);
      // As by formula, so what an arm gathers to write it is no part of a step.
      CHECK(rank.facts.receipts.at("parallel.sharding_strategy").at("reason") == "");
    }
    check_same(load_tensors(gradients_file(two / "0")), gradients, share);
    check_same(load_tensors(update_file(two / "0")), update, share);
    CHECK(std::filesystem::exists(two / "0" / "metrics.jsonl"));
    CHECK_FALSE(std::filesystem::exists(two / "1"));
  }
}

TEST_CASE("two ranks with perturbed weights differ from two without") {
  const TemporaryFolder folder;
  Recipe recipe = mlp_recipe();
  recipe.parallel.sharding_strategy = ShardingStrategy::zero3;
  two_ranks(recipe, false, folder / "plain");
  two_ranks(recipe, true, folder / "perturbed");
  CHECK_FALSE(
      equal(load_tensors(update_file(folder / "plain" / "0")), load_tensors(update_file(folder / "perturbed" / "0"))));
}
