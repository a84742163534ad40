// Units whose activations are computed again in backward train what they train without, in all bits.
#include "optimizations/activation_checkpointing/activation_checkpointing.h"

#include "device/tensor.h"
#include "device/tensor_memory.h"
#include "support/catch.h"
#include "support/small_gpt2.h"
#include "support/trained_ranks.h"
#include "train/memory_forecast.h"

namespace activation_checkpointing_tests {

using namespace trainopt;
using namespace trainopt::test;
using activation_checkpointing::Config;
using activation_checkpointing::Policy;

namespace {

Recipe gpt2_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  use_gpt2(recipe);
  recipe.data.batch_size = 8;
  recipe.optimizer = AdamConfig{.lr = 0.01};
  recipe.train.max_steps = 3;
  return recipe;
}

Recipe resnet_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model.stem = StemKind::cifar;
  recipe.data.size = 24;
  recipe.data.batch_size = 8;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 16}, NormalizeConfig{}};
  recipe.optimizer = SgdConfig{.lr = 0.01};
  recipe.train.max_steps = 3;
  return recipe;
}

Recipe with(Recipe recipe, const std::function<void(Recipe&)>& change) {
  change(recipe);
  return recipe;
}

Recipe checkpointed(Recipe recipe, Config config) {
  recipe.optimizations.activation_checkpointing = {true, std::move(config)};
  return recipe;
}

std::string first_difference(const NamedTensors& a, const NamedTensors& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].second.equal(b[i].second)) return a[i].first;
  return "";
}

void check_same_bits(const Recipe& plain, const Config& config, int64_t ranks = 1) {
  const Trained expected = train_as(ranks, plain), found = train_as(ranks, checkpointed(plain, config));
  CHECK(found.losses == expected.losses);
  CHECK(first_difference(found.weights, expected.weights).empty());
  const auto& receipt = found.receipts.back();
  INFO(receipt.receipt.observed);
  CHECK(receipt.receipt.effective);
}

const Config kFull{}, kSelective{.policy = Policy::selective};

std::string outcome_of(const Recipe& recipe) {
  for (const PlannedSwitch& planned : make_plan(recipe, Machine{.cpu = "test", .cores = 2}).switches)
    if (planned.name == "activation_checkpointing") return planned.outcome.text;
  return "";
}

}  // namespace

TEST_CASE("a language model trains the same bits, whatever is computed again") {
  const std::vector<std::pair<std::string, std::function<void(Recipe&)>>> variants{
      {"plain", [](Recipe&) {}},
      {"dropout", [](Recipe& r) { r.model.dropout = 0.2; }},
      {"dropout in bfloat16", [](Recipe& r) { r.model.dropout = 0.2, r.optimizations.amp.on = true; }},
      {"fused", [](Recipe& r) { r.optimizations.fused_kernels = r.optimizations.fused_optimizer = true; }},
      {"fused in bfloat16 with weight copies",
       [](Recipe& r) {
         r.optimizations.fused_kernels = r.optimizations.fused_optimizer = r.optimizations.amp.on = true;
       }},
      {"accumulated", [](Recipe& r) { r.train.gradient_accumulation_steps = 2; }},
      {"undone when not finite", [](Recipe& r) { r.train.on_nonfinite = OnNonfinite::skip, r.model.dropout = 0.2; }}};
  for (const auto& [name, change] : variants) {
    DYNAMIC_SECTION(name) {
      for (const Config& config : {kFull, kSelective}) check_same_bits(with(gpt2_recipe(), change), config);
    }
  }
}

TEST_CASE("units with tied weights, tokens as input or the loss can be computed again") {
  for (const Policy policy : {Policy::full, Policy::selective})
    check_same_bits(gpt2_recipe(),
                    {.units = {"transformer.embedding", "transformer.h.1", "lm_head"}, .policy = policy});
}

TEST_CASE("batch-norm's statistics are updated once") {
  for (const Config& config : {kFull, kSelective}) {
    check_same_bits(resnet_recipe(), config);
    check_same_bits(with(resnet_recipe(), [](Recipe& r) { r.optimizations.amp.on = true; }), config);
    check_same_bits(
        with(resnet_recipe(), [](Recipe& r) { r.optimizations.fused_kernels = r.optimizations.winograd.on = true; }),
        config);
  }
}

TEST_CASE("layers whose products are overwritten in place train the same bits") {
  const Recipe mlp = with(resnet_recipe(), [](Recipe& r) {
    r.model = {.name = ModelKind::mlp, .hidden = {32, 24, 16}, .dropout = 0.2};
  });
  check_same_bits(mlp, kFull);
  check_same_bits(mlp, kSelective);
}

TEST_CASE("stochastic depth draws the same again") {
  check_same_bits(with(resnet_recipe(),
                       [](Recipe& r) {
                         r.model = {.name = ModelKind::convnext_tiny, .stochastic_depth = 0.5};
                         r.data.transforms = {ResizeConfig{.shorter_side = 32}, NormalizeConfig{}};
                         r.data.batch_size = 4;
                         r.train.max_steps = 2;
                       }),
                  kFull);
}

TEST_CASE("several ranks train the same bits, however they share the model") {
  for (const auto strategy : {ShardingStrategy::none, ShardingStrategy::zero2, ShardingStrategy::zero3})
    for (const Config& config : {kFull, Config{.units = {"transformer.embedding", "transformer.h.0", "lm_head"}}}) {
      const Recipe recipe = with(gpt2_recipe(), [&](Recipe& r) {
        r.data.batch_size = 4;
        r.parallel.sharding_strategy = strategy;
        r.train.gradient_accumulation_steps = 2;
      });
      check_same_bits(recipe, config, /*ranks=*/2);
    }
}

TEST_CASE("synchronised batch-norm exchanges its statistics again") {
  const Recipe recipe = with(resnet_recipe(), [](Recipe& r) { r.parallel.sync_batch_norm = true; });
  check_same_bits(recipe, kFull, /*ranks=*/2);
}

TEST_CASE("blocks keep their input, and the results of products if asked to") {
  install_counting_allocator();
  // 8 samples of 16 tokens with 24 float32 values, in each of two blocks. A block's products: 3 + 1 + 4 times as many,
  // and its last, whose value nothing needs.
  const int64_t input = 8 * 16 * 24 * 4;
  const auto posted = [&](const Config& config, size_t number) {
    int64_t bytes = 0;
    for (const auto& [operation, calls] : train_as(1, checkpointed(gpt2_recipe(), config)).trace.operations)
      if (operation.name == activation_checkpointing::kRecomputedLabel) bytes += calls * operation.number(number);
    return bytes;
  };
  const auto kept = [&](const Config& config) { return posted(config, 0); };
  CHECK(kept(kFull) == 2 * (input + 4));  // and one value that stands for the last product
  CHECK(kept(kSelective) == 2 * (9 * input + 4));
  CHECK(kept({.every = 2}) == input + 4);
  // Without checkpointing a block keeps its input and what the second forward computes: 16 times the input, and the
  // statistics of norms and attention.
  const auto plain = static_cast<double>(kept(kFull) + posted(kFull, 1));
  CHECK(plain == Approx(2 * 16 * input).epsilon(0.1));
  CHECK(static_cast<double>(kept(kSelective)) <= 0.6 * plain);
}

TEST_CASE("the forecast knows what is computed again") {
  const Recipe recipe = with(gpt2_recipe(), [](Recipe& r) { r.model.layers = 12; });
  const auto activations = [](const Recipe& wanted) {
    return forecast_memory(make_plan(wanted, Machine{.cpu = "test", .cores = 2})).breakdown[MemoryUse::activations];
  };
  const int64_t plain = activations(recipe), full = activations(checkpointed(recipe, kFull)),
                selective = activations(checkpointed(recipe, kSelective));
  CHECK(full < selective);
  CHECK(selective < plain);
}

TEST_CASE("what activation checkpointing cannot do is said in a sentence") {
  const Recipe recipe = gpt2_recipe();
  CHECK(outcome_of(checkpointed(recipe, kFull)) ==
        "2 of 5 units keep only their input and are computed again in backward: at most 32 % more operations");
  CHECK_THROWS_WITH(outcome_of(checkpointed(recipe, {.units = {"transformer.h.7"}})),
                    "optimizations.activation_checkpointing.units: the model has no unit transformer.h.7; its 5 units "
                    "are transformer.embedding, transformer.h.0, transformer.h.1, transformer.ln_f, lm_head");
  CHECK(outcome_of(checkpointed(recipe, {.every = 3})) ==
        "the gpt2 has fewer than 3 blocks between its first and its last unit");
  const auto problems = check_optimizations(checkpointed(recipe, {.every = 1, .units = {"lm_head"}}));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].message == "units names the units; remove one of the two");
}

}  // namespace activation_checkpointing_tests
