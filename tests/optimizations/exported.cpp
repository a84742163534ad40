// A program of torch.export trains with the switches, recomputes, shares ranks and resumes as a built-in network does.
// What it computes is compared with PyTorch by tests/oracle/test_exported.py.
#include "support/catch.h"
#include "support/resuming.h"
#include "support/trained_ranks.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace exported_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

Recipe program_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model.name = ModelKind::exported;
  recipe.model.path = std::string(MODEL_FILES) + "/net.pt2";  // convolutions, batch-norm, dropout, side values
  recipe.data.size = 48;
  recipe.data.batch_size = 8;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 8}, NormalizeConfig{}};
  recipe.optimizer = SgdConfig{.lr = 0.05, .momentum = 0.9};
  recipe.train.max_steps = 5;
  return recipe;
}

Recipe with(const std::function<void(Recipe&)>& change) {
  Recipe recipe = program_recipe();
  change(recipe);
  return recipe;
}

NamedTensors sorted(NamedTensors tensors) {  // units decide on the order
  std::ranges::sort(tensors, {}, &std::pair<std::string, at::Tensor>::first);
  return tensors;
}

void check_same_bits(const Trained& found, const Trained& expected) {
  CHECK(found.losses == expected.losses);
  CHECK(first_difference(sorted(found.weights), sorted(expected.weights)) == "");
}

std::string outcome_of(const Recipe& recipe, std::string_view name) {
  for (const PlannedSwitch& planned : make_plan(recipe, Machine{.cpu = "test", .cores = 2}).switches)
    if (planned.name == name) return planned.outcome.text;
  return "";
}

}  // namespace

TEST_CASE("a program is recomputed with the same draws, and its statistics change once") {
  const Trained plain = train_as(1, program_recipe());
  for (const char* units : {"blocks", "layers"})
    check_same_bits(train_as(1, with([&](Recipe& r) {
                               r.model.units = units;
                               r.optimizations.activation_checkpointing.on = true;
                             })),
                    plain);
  for (const auto& [name, tensor] : plain.weights)
    if (name.ends_with("num_batches_tracked")) CHECK(tensor.item<int64_t>() == 5);
}

TEST_CASE("what a program writes through views, to its input or to buffers is as without units") {
  const auto effects = [](Recipe& r) { r.model.path = std::string(MODEL_FILES) + "/effects.pt2"; };
  const Trained whole = train_as(1, with([&](Recipe& r) {
                                   effects(r);
                                   r.model.units = "none";
                                 }));
  for (const bool recomputed : {false, true})
    check_same_bits(train_as(1, with([&](Recipe& r) {
                               effects(r);
                               r.model.units = "layers";
                               r.optimizations.activation_checkpointing.on = recomputed;
                             })),
                    whole);
}

TEST_CASE("two ranks train a program, however they share it") {
  const auto change = [](Recipe& r) { r.data.batch_size = 4; };
  const Trained replicas = train_as(2, with(change));
  for (const auto strategy : {ShardingStrategy::zero1, ShardingStrategy::zero2, ShardingStrategy::zero3}) {
    const Trained sharded = train_as(2, with([&](Recipe& r) {
                                       change(r);
                                       r.parallel.sharding_strategy = strategy;
                                     }));
    REQUIRE(sharded.losses.size() == replicas.losses.size());
    for (size_t i = 0; i < sharded.losses.size(); ++i)
      CHECK(sharded.losses[i] == Approx(replicas.losses[i]).epsilon(1e-5));
  }
}

TEST_CASE("what a program cannot do is said in a sentence") {
  const auto refused = [](const std::function<void(Recipe&)>& change) {
    try {
      train_as(1, with(change));
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  CHECK_THAT(
      refused([](Recipe& r) {
        r.optimizations.activation_checkpointing = {true, {.policy = activation_checkpointing::Policy::selective}};
      }),
      Catch::Matchers::Contains("an exported program needs full"));
  CHECK_THAT(refused([](Recipe& r) {
               r.data.transforms = {ResizeConfig{.shorter_side = 9}, NormalizeConfig{}};
             }),
             Catch::Matchers::Contains("takes images of 3×8×8") && Catch::Matchers::Contains("3×9×9"));
  CHECK_THAT(refused([](Recipe& r) { r.model.path = std::string(MODEL_FILES) + "/noisy.pt2"; }),
             Catch::Matchers::Equals("not refused"));
}

TEST_CASE("switches that move or round a program's tensors change no more than rounding") {
  const Trained plain = train_as(1, program_recipe());
  const auto check = [&](double tolerance, const std::function<void(Recipe&)>& change) {
    const Trained changed = train_as(1, with(change));
    for (size_t i = 0; i < plain.losses.size(); ++i)
      CHECK(changed.losses[i] == Approx(plain.losses[i]).epsilon(tolerance));
  };
  check(1e-4, [](Recipe& r) { r.optimizations.channels_last = true; });
  check(1e-4, [](Recipe& r) { r.optimizations.fused_optimizer = r.optimizations.set_to_none = true; });
  check(1e-4, [](Recipe& r) { r.optimizations.fused_kernels = true; });
  check(0.03, [](Recipe& r) { r.optimizations.amp.on = true; });
}

TEST_CASE("switches that replace operations say that a program has none to replace") {
  const char* why = "an exported program computes its operations itself";
  CHECK_THAT(outcome_of(with([](Recipe& r) { r.optimizations.winograd.on = true; }), "winograd"),
             Catch::Matchers::Contains(why));
  CHECK_THAT(outcome_of(with([](Recipe& r) { r.optimizations.fp8.on = true; }), "fp8"), Catch::Matchers::Contains(why));
  CHECK_THAT(outcome_of(with([](Recipe& r) { r.optimizations.fused_kernels = true; }), "fused_kernels"),
             Catch::Matchers::Contains("loss and its gradient in one pass") && Catch::Matchers::Contains(why));
}

TEST_CASE("a program resumes bit-exactly after every step") {
  at::set_num_threads(1);
  Recipe recipe = program_recipe();
  recipe.train.max_steps = 8;  // an epoch has six
  const auto plan = [&] { return make_plan(recipe, Machine{.cpu = "test", .cores = 2}); };
  const PartialRun uninterrupted = train_part(plan());
  for (int64_t k = 1; k < 8; ++k) {
    const PartialRun resumed = train_in_two(plan(), plan(), k);
    INFO("stopped after step " << k);
    CHECK(resumed.losses == uninterrupted.losses);
    CHECK(first_difference(resumed.state, uninterrupted.state) == "");
  }
}

TEST_CASE("two trainers of one program take turns and compute what each computes alone") {
  const Plan plan = make_plan(program_recipe(), Machine{.cpu = "test", .cores = 2});
  const PartialRun alone = train_part(plan);
  Rows first_rows, second_rows;
  Trainer first(plan, {}, first_rows, never_stopped()), second(plan, {}, second_rows, never_stopped());
  for (int step = 0; step < 5; ++step) {
    first.step();
    second.step();
  }
  first.pause();
  second.pause();
  CHECK(first_rows.losses() == alone.losses);
  CHECK(second_rows.losses() == alone.losses);
}

}  // namespace exported_tests
