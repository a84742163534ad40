// A program of torch.export trains with the switches, recomputes, shares ranks and resumes as a built-in network does.
// What it computes is compared with PyTorch by tests/oracle/test_exported.py.
#include "support/catch.h"
#include "support/resuming.h"
#include "support/programs.h"
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
  for (const auto policy : {activation_checkpointing::Policy::full, activation_checkpointing::Policy::selective})
    for (const char* units : {"blocks", "layers"})
      check_same_bits(train_as(1, with([&](Recipe& r) {
                                 r.model.units = units;
                                 r.optimizations.activation_checkpointing = {true, {.policy = policy}};
                               })),
                      plain);
  for (const auto& [name, tensor] : plain.weights)
    if (name.ends_with("num_batches_tracked")) CHECK(tensor.item<int64_t>() == 5);
}

TEST_CASE("what a program writes through views, to its input or to buffers is as without units") {
  const auto effects = [](Recipe& r) { r.model.path = std::string(MODEL_FILES) + "/effects.pt2"; };
  const Trained whole = train_as(1, with([&](Recipe& r) {
                                   effects(r);
                                   r.model.units = "blocks";  // one unit
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

void check_losses(const Trained& found, const Trained& expected, double tolerance) {
  REQUIRE(found.losses.size() == expected.losses.size());
  for (size_t i = 0; i < found.losses.size(); ++i)
    CHECK(found.losses[i] == Approx(expected.losses[i]).epsilon(tolerance));
}

TEST_CASE("switches that replace layers reach those of a program") {
  const auto amp_rounds = [](Recipe& r) { r.optimizations.amp.on = true; };
  const auto train = [](auto use, const std::function<void(Recipe&)>& change) {
    return train_as(1, with([&](Recipe& r) {
                      use(r);
                      change(r);
                    }));
  };
  const Trained images = train(use_residual, [](Recipe&) {}), text = train(use_text, [](Recipe&) {});
  for (const auto& switched : std::vector<std::function<void(Recipe&)>>{
           [](Recipe& r) { r.optimizations.fused_kernels = true; },
           [](Recipe& r) { r.optimizations.winograd.on = true; },
           [](Recipe& r) { r.optimizations.fused_kernels = r.optimizations.winograd.on = true; }})
    check_losses(train(use_residual, switched), images, 1e-3);
  check_losses(train(use_text, [](Recipe& r) { r.optimizations.fused_kernels = true; }), text, 1e-4);
  check_losses(train(use_text, [](Recipe& r) { r.optimizations.fp8.on = true; }), text, 0.05);
  check_losses(train(use_residual, amp_rounds), images, 0.05);
  check_losses(train(use_text,
                     [&](Recipe& r) {
                       amp_rounds(r);
                       r.optimizations.fused_kernels = r.optimizations.fused_optimizer = true;
                     }),
               text, 0.05);

  const auto outcome = [](auto use, std::string_view name, const std::function<void(Recipe&)>& change) {
    return outcome_of(with([&](Recipe& r) {
                        use(r);
                        change(r);
                      }),
                      name);
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(outcome(use_residual, "winograd", [](Recipe& r) { r.optimizations.winograd.on = true; }),
             Contains("for 3×3 convolutions"));
  CHECK_THAT(outcome(use_residual, "fused_kernels", [](Recipe& r) { r.optimizations.fused_kernels = true; }),
             Contains("batch-norm fused with addition, ReLU"));
  CHECK_THAT(outcome(use_text, "fused_kernels", [](Recipe& r) { r.optimizations.fused_kernels = true; }),
             Contains("layer norm with the addition before it and GELU"));
  CHECK_THAT(outcome(use_text, "winograd", [](Recipe& r) { r.optimizations.winograd.on = true; }),
             Contains("no 3×3 convolutions of the program can be replaced"));
}

TEST_CASE("a program with layers resumes bit-exactly, recomputes and shares ranks with fused kernels") {
  at::set_num_threads(1);
  for (const auto use : {use_residual, use_text}) {
    const auto fused = [&](Recipe& r) {
      use(r);
      r.optimizations.fused_kernels = r.optimizations.fused_optimizer = true;
    };
    const auto plan = [&] { return make_plan(with(fused), Machine{.cpu = "test", .cores = 2}); };
    const PartialRun uninterrupted = train_part(plan()), resumed = train_in_two(plan(), plan(), 2);
    CHECK(resumed.losses == uninterrupted.losses);
    CHECK(first_difference(resumed.state, uninterrupted.state) == "");
    check_same_bits(train_as(1, with([&](Recipe& r) {
                               fused(r);
                               r.optimizations.activation_checkpointing.on = true;
                             })),
                    train_as(1, with(fused)));
    const auto halved = [&](Recipe& r) {
      fused(r);
      r.data.batch_size = 4;
    };
    check_losses(train_as(2, with([&](Recipe& r) {
                            halved(r);
                            r.parallel.sharding_strategy = ShardingStrategy::zero3;
                          })),
                 train_as(2, with(halved)), 1e-5);
  }
}

TEST_CASE("stages and ranks compute a program as one rank does") {
  const auto residual = [](int64_t batch) {
    return [batch](Recipe& r) {
      use_residual(r);
      r.data.batch_size = batch;
    };
  };
  check_losses(train_as(2, with([&](Recipe& r) {
                          residual(4)(r);
                          r.parallel.sync_batch_norm = true;
                        })),
               train_as(1, with(residual(8))), 1e-4);
  const auto staged = [](const std::function<void(Recipe&)>& use) {
    return [use](Recipe& r) {
      use(r);
      r.parallel.pipeline = {.stages = 2, .micro_batches = 1};
    };
  };
  check_losses(train_as(2, with(staged(residual(8)))), train_as(1, with(residual(8))), 1e-5);
  const auto text = [](Recipe& r) {
    use_text(r);
    r.model.units = "layers";  // its head is its embedding, on the other stage
  };
  check_losses(train_as(2, with(staged(text))), train_as(1, with(text)), 1e-5);
  // Stages receive what they cannot compute, also in 16 bits and in several micro-batches.
  for (const bool rounded : {false, true}) {
    const auto sides = [rounded](Recipe& r) {
      use_program_of_text(r, "sides");
      r.optimizations.amp.on = rounded;
      r.evaluation.every_n_steps = 2;
      r.evaluation.path = r.data.path;
    };
    const double tolerance = rounded ? 0.01 : 1e-5;
    const Trained alone = train_as(1, with(sides));
    for (const int64_t stages : {2, 4}) {
      const Trained staged_run = train_as(stages, with([&](Recipe& r) {
                                            sides(r);
                                            r.parallel.pipeline = {.stages = stages, .micro_batches = 2};
                                          }));
      check_losses(staged_run, alone, tolerance);
      REQUIRE_FALSE(alone.evaluations.empty());
      REQUIRE(staged_run.evaluations.size() == alone.evaluations.size());
      for (size_t i = 0; i < alone.evaluations.size(); ++i)
        CHECK(staged_run.evaluations[i].loss == Approx(alone.evaluations[i].loss).epsilon(tolerance));
    }
  }
}

TEST_CASE("a program's written attention runs as the recipe says") {
  const auto receipt_of = [](const std::function<void(Recipe&)>& change, std::string_view name) {
    const Trained trained = train_as(1, with([&](Recipe& r) {
                                       use_written(r);
                                       change(r);
                                     }));
    for (const SwitchReceipt& each : trained.receipts)
      if (each.name == name) return each.receipt.observed + each.receipt.reason;
    return std::string("not among the switches");
  };
  const auto fused = [](Recipe& r) { r.optimizations.fused_kernels = true; };
  const auto as = [](AttentionKernel kernel) { return [kernel](Recipe& r) { r.optimizations.attention = kernel; }; };
  using Catch::Matchers::Contains;
  CHECK(receipt_of([](Recipe&) {}, "attention") == "not among the switches");
  CHECK(receipt_of(as(AttentionKernel::math), "attention") == "not among the switches");
  CHECK_THAT(receipt_of(as(AttentionKernel::flash), "attention"), Contains("2 attentions by flash"));
  CHECK_THAT(receipt_of(fused, "attention"), Contains("2 attentions by fused_kernels"));
  CHECK_THAT(receipt_of(fused, "fused_kernels"), Contains("2 of 2 GELUs fused"));
  CHECK_THAT(outcome_of(with([&](Recipe& r) {
                          use_written(r);
                          r.optimizations.attention = AttentionKernel::flash;
                        }),
                        "attention"),
             Contains("flash"));
}

TEST_CASE("hybrid sharding, averages, gradient checks and anomaly detection work on programs") {
  const auto on_ranks = [](int64_t ranks, const std::function<void(Recipe&)>& change) {
    return train_as(ranks, with([&](Recipe& r) {
                      use_written(r);
                      r.data.batch_size = 8 / ranks;
                      change(r);
                    }),
                    {}, /*machines=*/ranks == 4 ? 2 : 1);
  };
  const Trained alone = on_ranks(1, [](Recipe&) {});
  check_losses(on_ranks(2, [](Recipe&) {}), alone, 1e-5);
  check_losses(on_ranks(4, [](Recipe& r) { r.parallel.sharding_strategy = ShardingStrategy::hybrid; }), alone, 1e-5);
  for (const AverageConfig& average : {AverageConfig(EmaConfig{.decay = 0.9}), AverageConfig(SwaConfig{})})
    check_same_bits(on_ranks(1, [&](Recipe& r) { r.average = average; }), alone);
  check_same_bits(on_ranks(1, [](Recipe& r) { r.debug.anomaly = true; }), alone);
  const auto replaced = [](Recipe& r) { r.optimizations.fused_kernels = true; };
  check_same_bits(on_ranks(1, [&](Recipe& r) { replaced(r), r.debug.gradcheck = true; }), on_ranks(1, replaced));
}

TEST_CASE("a program that computes its own loss trains with every way of running it") {
  const auto own = [](const std::function<void(Recipe&)>& change) {
    return with([&](Recipe& r) {
      use_program(r, "own-loss");
      r.model.units = "layers";
      change(r);
    });
  };
  const Trained plain = train_as(1, own([](Recipe&) {}));
  check_same_bits(train_as(1, own([](Recipe& r) { r.optimizations.activation_checkpointing.on = true; })), plain);
  for (const int64_t stages : {2, 3})  // the first unit uses the target too
    check_losses(
        train_as(stages, own([&](Recipe& r) { r.parallel.pipeline = {.stages = stages, .micro_batches = 1}; })), plain,
        1e-5);
  const auto fused = [](Recipe& r) { r.optimizations.fused_kernels = r.optimizations.amp.on = true; };
  check_losses(train_as(1, own(fused)), plain, 0.05);
  CHECK(outcome_of(own(fused), "fused_kernels").find("loss") == std::string::npos);
  const auto halved = [](Recipe& r) { r.data.batch_size = 4; };
  check_losses(train_as(2, own([&](Recipe& r) {
                          halved(r);
                          r.parallel.sharding_strategy = ShardingStrategy::zero3;
                        })),
               train_as(2, own(halved)), 1e-5);
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
