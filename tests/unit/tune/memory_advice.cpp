// Which changes of a recipe are proposed to lower its memory.
#include "tune/memory_advice.h"

#include "recipe/make_plan.h"
#include "train/memory_forecast.h"

#include <catch2/catch.hpp>

namespace trainopt {
namespace {

const Machine kMachine{.cpu = "test", .cores = 2};

Recipe gpt2_recipe_with(const Words& words, int64_t ranks = 1) {
  Words all{"data.dataset=synthetic", "data.size=64",   "data.batch_size=8", "model.name=gpt2",     "model.layers=2",
            "model.heads=2",          "model.width=32", "model.context=64",  "model.vocabulary=64", "device=cpu"};
  all.insert(all.end(), words.begin(), words.end());
  const auto recipe = with_words(Recipe{}, all, ranks);
  if (!recipe) throw std::runtime_error("no recipe: " + text_of(all));
  return *recipe;
}

std::vector<MemoryProposal> proposals(const Words& words, const RankPosition& position = {}) {
  const Recipe recipe = gpt2_recipe_with(words, position.ranks);
  return propose_less_memory(recipe, make_plan(recipe, kMachine, position));
}

const MemoryProposal* proposal_of(const std::vector<MemoryProposal>& all, const std::string& text) {
  for (const MemoryProposal& each : all)
    if (text_of(each.change) == text) return &each;
  return nullptr;
}

}  // namespace

TEST_CASE("what saves memory is proposed by its forecast, the most first") {
  const auto all = proposals({});
  const MemoryProposal* recompute = proposal_of(all, "optimizations.activation_checkpointing=true");
  REQUIRE(recompute);
  CHECK(recompute->exactness == Exactness::same_bits);
  const auto forecast = [](const Words& words) {
    return forecast_memory(make_plan(gpt2_recipe_with(words), kMachine)).breakdown.total();
  };
  CHECK(recompute->bytes_before == forecast({}));
  CHECK(recompute->bytes_after == forecast(recompute->change));
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].saved_bytes() > 0);
    if (i > 0) CHECK(all[i - 1].saved_bytes() >= all[i].saved_bytes());
  }
  const MemoryProposal* pieces = proposal_of(all, "data.batch_size=4 train.gradient_accumulation_steps=2");
  REQUIRE(pieces);
  CHECK(pieces->exactness == Exactness::same_math);
}

TEST_CASE("what is on, or cannot be, is not proposed to save memory") {
  const auto on = proposals({"optimizations.activation_checkpointing=true", "data.batch_size=1"});
  CHECK_FALSE(proposal_of(on, "optimizations.activation_checkpointing=true"));
  for (const MemoryProposal& each : on) CHECK_FALSE(each.change.front().starts_with("data.batch_size"));
  CHECK_FALSE(proposal_of(on, "parallel.sharding_strategy=zero3"));
}

TEST_CASE("several ranks may shard") {
  const auto all = proposals({"optimizer.name=adamw"}, {.rank = 0, .ranks = 2, .local_rank = 0, .local_ranks = 2});
  const MemoryProposal* zero1 = proposal_of(all, "parallel.sharding_strategy=zero1");
  REQUIRE(zero1);
  CHECK(zero1->exactness == Exactness::same_math);
}

}  // namespace trainopt
