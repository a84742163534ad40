// What whole runs to a target say together.
#include "compare/until.h"

#include "recipe/recipe_io.h"
#include "support/catch.h"

#include <limits>

using namespace trainopt;

namespace {

UntilRun arrived(double seconds, int64_t steps) {
  return {.time = {.seconds = seconds, .reached = true}, .steps = steps, .samples = 8 * steps, .resolution = 10};
}
UntilRun diverged() { return {.time = {.seconds = std::numeric_limits<double>::infinity()}, .diverged = true}; }

UntilResult result_of(std::vector<std::array<UntilRun, 2>> runs) {
  UntilResult result;
  result.a.name = "a.yaml";
  result.b.name = "b.yaml";
  result.level = 0.9;
  result.goal = {"loss", 2};
  for (auto& pair : runs) result.pairs.push_back({std::ssize(result.pairs), std::move(pair)});
  return result;
}

/// B takes `factor` of A's time, of which every seed has its own.
UntilResult ten_seeds(double factor) {
  std::vector<std::array<UntilRun, 2>> runs;
  for (int seed = 0; seed < 10; ++seed) {
    const double seconds = 100 + 10 * seed;
    runs.push_back({arrived(seconds, 1000), arrived(factor * seconds * (1 + 0.001 * seed), 2000)});
  }
  return result_of(std::move(runs));
}

Recipe with_target(double loss) {
  Recipe recipe;
  recipe.train.target.loss = loss;
  return recipe;
}

}  // namespace

TEST_CASE("half the time pays, twice the time costs, and the steps explain which part it is") {
  CHECK(ten_seeds(0.5).verdict() == Verdict::pays);
  CHECK(ten_seeds(2).verdict() == Verdict::costs);
  CHECK_THAT(until_text(ten_seeds(0.5)), ContainsSubstring("B needs 2.00 times the steps of A, each with 0.25 times"));
}

TEST_CASE("runs that diverged count as never arrived, and pairs of them decide nothing") {
  const UntilResult result = result_of({{arrived(10, 100), diverged()}, {diverged(), diverged()}});
  CHECK(result.reached(0) == 1);
  CHECK(result.reached(1) == 0);
  CHECK(result.verdict() == Verdict::inconclusive);
  const std::string text = until_text(result);
  CHECK_THAT(text, ContainsSubstring("in 1 pair both runs diverged, so neither was first"));
  CHECK_THAT(text, ContainsSubstring("2 seeds give no interval at 90 %"));
  const Json json = to_json(result);
  CHECK(json.at("pairs").at(0).at("b").at("training_s").is_null());
  CHECK(json.at("arms").at("b").at("median").at("training_s").is_null());
  CHECK(json.at("arms").at("a").at("median").at("samples") == 800);
}

TEST_CASE("a median is that of the runs that arrived") {
  const UntilResult result = result_of({{arrived(10, 1), diverged()}, {arrived(30, 3), arrived(5, 1)}});
  CHECK(result.median(0, seconds_of) == 20);
  CHECK(result.median(1, seconds_of) == 5);
}

TEST_CASE("mistakes are found before anything runs") {
  UntilArguments arguments{.a = {"A", with_target(2)}, .b = {"B", with_target(2)}};
  CHECK(prepare_until(arguments).goal.value == 2);
  arguments.seeds = 3;
  CHECK_THROWS_WITH(prepare_until(arguments), ContainsSubstring("--seeds: a verdict at 95 % needs at least"));
  arguments.b.recipe = with_target(3);
  CHECK_THROWS_WITH(prepare_until(arguments), ContainsSubstring("must have the same train.target"));
  arguments.b.recipe = Recipe();
  CHECK_THROWS_WITH(prepare_until(arguments), ContainsSubstring("B has none"));
  CHECK_THROWS_WITH(prepare_until_parts(Recipe(), 10, 0.95, 0.01), ContainsSubstring("needs train.target"));
  CHECK_THROWS_WITH(prepare_until_parts(with_target(2), 10, 0.95, 0.01), ContainsSubstring("this recipe has none"));
}

TEST_CASE("the intervals of several parts hold together") {
  const auto recipe =
      with_words(Recipe(),
                 {"data={dataset: cifar10, path: p}", "evaluation.every_n_steps=3", "train.target.loss=2",
                  "scheduler={name: cosine}", "average={name: ema}", "train.max_steps=9"},
                 1);
  REQUIRE(recipe);
  const UntilParts all = prepare_until_parts(*recipe, 20, 0.9, 0.01);
  REQUIRE(all.parts.size() == 2);
  for (const UntilPart& part : all.parts) CHECK(part.result.level == Approx(0.95));
  CHECK_THROWS_WITH(prepare_until_parts(*recipe, 5, 0.9, 0.01), ContainsSubstring("verdicts about 2 parts"));
}
