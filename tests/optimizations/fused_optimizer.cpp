// Fused updates compared with the loop over parameters, and deferred gradients with the plain form, which does each
// pass immediately. tests/kernels tests the kernels.
#include "debugging/inject.h"
#include "device/tensor.h"
#include "optimizations/fused_optimizer/fused_optimizer.h"
#include "optimizations/fused_optimizer/fused_update.h"
#include "recipe/make_plan.h"
#include "support/catch.h"
#include "support/parameters.h"
#include "support/plans.h"
#include "support/resuming.h"

namespace fused_optimizer_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

std::unique_ptr<Optimizer> fused(const OptimizerConfig& config, FixedParameters& store,
                                 const std::map<std::string, ParameterSettings>& settings = {}) {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.optimizer = config;
  recipe.optimizations.fused_optimizer = true;
  Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  plan.parameter_settings = settings;
  return plan.optimizer.build({.plan = plan, .device = at::kCPU, .run_dir = {}, .parameters = &store});
}

/// An mlp that trains long enough to reveal errors.
Recipe small_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model = {.name = ModelKind::mlp, .hidden = {16}, .dropout = 0.25};
  recipe.data.size = 96;
  recipe.data.batch_size = 8;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 8},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  recipe.train.max_steps = 10;
  recipe.optimizer = SgdConfig{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01};
  recipe.scheduler = {.schedule = CosineSchedule{}, .warmup_steps = 3};
  return recipe;
}

struct Result {
  std::vector<StepRecord> rows;
  NamedTensors weights;
  std::string receipt;
  StepTrace seen;
  std::optional<EvaluationResult> evaluation;
};
Result train(
    const Recipe& recipe, const std::function<void(Plan&)>& change = [](Plan&) {}) {
  Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  change(plan);
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  Result result{rows.rows, {}, {}, trainer.outcome().trace, trainer.outcome().evaluation};
  for (const auto& [name, tensor] : trainer.parts().model().parameters())
    result.weights.emplace_back(name, tensor.detach().clone());
  for (const auto& entry : receipts(plan.switches, result.seen))
    if (entry.name == "fused_optimizer") {
      CHECK(entry.receipt.effective);
      result.receipt = entry.receipt.observed;
    }
  return result;
}

}  // namespace

TEST_CASE("fused updates agree with the loop over parameters, overflow included") {
  AdamWConfig adamw;
  adamw.weight_decay = 0.1;
  AdamConfig adam;
  adam.weight_decay = 0.1;
  const auto config = GENERATE_COPY(
      OptimizerConfig(SgdConfig{.lr = 0.1, .momentum = 0}), OptimizerConfig(SgdConfig{.lr = 0.1, .weight_decay = 0.01}),
      OptimizerConfig(SgdConfig{.lr = 0.1, .weight_decay = 0.01, .nesterov = true}), OptimizerConfig(adam),
      OptimizerConfig(adamw), OptimizerConfig(LionConfig{.lr = 0.1, .weight_decay = 0.1}),
      OptimizerConfig(LarsConfig{.lr = 0.1, .weight_decay = 0.01, .trust_coeff = 0.1}),
      OptimizerConfig(
          LarsConfig{.lr = 0.1, .momentum = 0, .trust_coeff = 0.5, .trust_clip = true, .always_adapt = true}),
      OptimizerConfig(LambConfig{.lr = 0.1, .weight_decay = 0.1}),
      OptimizerConfig(LambConfig{.lr = 0.1, .bias_correction = false, .trust_clip = true, .always_adapt = true}));
  const bool scaled = GENERATE(false, true);
  using Settings = std::map<std::string, ParameterSettings>;
  const auto settings = GENERATE(Settings{}, Settings{{"b", {}}}, Settings{{"a", {.rate = 0.5, .weight_decay = 0.2}}});
  auto slow = some_parameters(), fast = some_parameters();
  const auto loop = make_loop_optimizer(config, slow, settings);
  const auto one = fused(config, fast, settings);
  for (int step = 0; step < 8; ++step) {
    const bool overflows = scaled && (step == 0 || step == 4);
    const at::Tensor overflow = scaled ? at::full({}, overflows ? 1.0f : 0.0f) : at::Tensor();
    loop->set_learning_rate(0.1 / (step + 1));
    one->set_learning_rate(0.1 / (step + 1));
    if (momentum_key(config)) loop->set_momentum(0.9 - 0.05 * step), one->set_momentum(0.9 - 0.05 * step);
    for (auto* store : {&slow, &fast}) {
      set_gradients(*store, static_cast<uint64_t>(step));
      if (overflows) store->gradients()[1].fill_(std::numeric_limits<float>::quiet_NaN());
      if (step == 6) store->parameters()[0].second.mutable_grad().reset();  // backward may not reach all parameters
    }
    loop->step(slow.finish_gradients(), overflow);
    one->step(fast.finish_gradients(), overflow);
    CHECK(largest_difference(slow, fast) < 2e-6);
  }
  CHECK(largest_difference(slow, some_parameters()) > 1e-3);  // the updates did something
}

TEST_CASE("fused SGD has per-parameter state only with momentum") {
  auto store = some_parameters();
  CHECK(state_tensors(*fused(SgdConfig{.momentum = 0}, store)) == 0);
  CHECK(state_tensors(*fused(SgdConfig{.momentum = 0.5}, store)) == store.parameters().size());
}

TEST_CASE("deferred gradients report the same norm, finiteness and values as plain ones") {
  const bool checks_first = GENERATE(false, true), spoilt = GENERATE(false, true);
  const auto parameters = [] {
    return FixedParameters({{"a", at::zeros({3, 5})}, {"b", at::zeros({4097})}, {"c", at::zeros({1})}});
  };
  auto done = parameters(), waiting = parameters(), untouched = parameters();
  for (auto* store : {&done, &waiting, &untouched}) {
    at::manual_seed(4);
    for (const auto& [name, parameter] : store->parameters()) parameter.mutable_grad() = at::randn(parameter.sizes());
    if (spoilt) store->gradients()[1][4096] = std::numeric_limits<float>::infinity();
    store->clears_with_zeros = true;
  }
  waiting.set_form(std::make_unique<fused_optimizer::DeferredGradients>(kernels::update::cpu_kernels(), at::zeros({})));
  const auto update = [](Gradients& gradients) {  // as the fused optimizer does
    const auto pending = gradients.pending();
    gradients.mark_cleared();
    return pending;
  };
  Gradients &at_once = done.finish_gradients(), &later = waiting.finish_gradients();
  at::Tensor bad = at::zeros({}), bad_later = at::zeros({});
  if (checks_first) {
    at_once.check_finite(bad);
    later.check_finite(bad_later);
  }
  at_once.unscale(at::full({}, 0.25f), bad);
  later.unscale(at::full({}, 0.25f), bad_later);
  CHECK(bad.equal(bad_later));
  CHECK(bad.item<float>() == (spoilt ? 1 : 0));
  const at::Tensor norm = at_once.norm(), norm_later = later.norm();
  CHECK(norm_later.scalar_type() == at::kFloat);
  CHECK(at::allclose(norm_later, norm, 1e-6));
  at_once.scale(at::full({}, 0.5f));
  later.scale(at::full({}, 0.5f));
  for (size_t i = 0; i < at_once.tensors().size(); ++i) {
    CHECK(later.tensors()[i].equal(untouched.gradients()[i]));
    CHECK(later.value(later.tensors()[i]).equal(at_once.tensors()[i]));
  }
  CHECK_FALSE(at_once.pending().factor.defined());

  const auto pending = update(later);
  CHECK(pending.factor.item<float>() == 0.125f);
  CHECK((pending.scaled && pending.clipped));
  later.clear();  // does nothing: the update has zeroed them
  CHECK(waiting.gradients()[0].equal(untouched.gradients()[0]));
  waiting.finish_gradients().clear();  // a step without an update
  CHECK_FALSE(waiting.gradients()[0].any().item<bool>());
  for (const auto& [name, parameter] : waiting.parameters()) parameter.mutable_grad().fill_(2);
  Gradients& next = waiting.finish_gradients();  // the next step
  CHECK_FALSE(next.pending().factor.defined());
  CHECK(next.norm().item<float>() == Approx(2 * std::sqrt(15 + 4097 + 1)));
  next.scale(at::full({}, 0.5f));
  CHECK_FALSE(waiting.finish_gradients().pending().factor.defined());  // nor after a step that was aborted
}

TEST_CASE("a run with fused updates agrees with one without, and its receipt lists what the pass included") {
  struct Way {
    std::string name;
    std::function<void(Recipe&)> turn_on;
    std::string along;
  };
  const std::vector<Way> ways = {
      {"plain", [](Recipe&) {}, "1 launch, gradients zeroed"},
      {"gradients freed", [](Recipe& r) { r.optimizations.set_to_none = true; }, "1 launch"},
      {"clipping", [](Recipe& r) { r.train.max_grad_norm = 0.3; },
       "1 launch, gradients clipped, gradients zeroed; 1 extra read of the gradients for norm and finiteness"},
      {"skipping", [](Recipe& r) { r.train.on_nonfinite = OnNonfinite::skip; },
       "1 launch, gradients zeroed; 1 extra read of the gradients for norm and finiteness"},
      {"loss scale",
       [](Recipe& r) {
         r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 1 << 20, .growth_interval = 3}};
       },
       "1 launch, gradients unscaled, gradients zeroed; 1 extra read of the gradients for norm and finiteness; 16-bit "
       "copies of 4 parameters kept, 0 parameter casts in the step"},
      {"everything",
       [](Recipe& r) {
         r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 1 << 20, .growth_interval = 3}};
         r.train.max_grad_norm = 0.3;
         r.train.on_nonfinite = OnNonfinite::rerun;
         r.train.gradient_accumulation_steps = 2;
         r.optimizer = AdamWConfig();
       },
       "1 launch, gradients unscaled, gradients clipped, gradients zeroed; 1 extra read of the gradients for norm and "
       "finiteness; 16-bit copies of 4 parameters kept, 0 parameter casts in the step"},
  };
  for (const Way& way : ways) {
    DYNAMIC_SECTION(way.name) {
      Recipe recipe = small_recipe();
      way.turn_on(recipe);
      const Result plain = train(recipe);
      recipe.optimizations.fused_optimizer = true;
      const Result with = train(recipe);
      CHECK(with.receipt == "4 of 4 parameter tensors updated in " + way.along);
      REQUIRE(with.rows.size() == plain.rows.size());
      for (size_t i = 0; i < plain.rows.size(); ++i) {
        CHECK(*with.rows[i][Metric::loss] == Approx(*plain.rows[i][Metric::loss]).epsilon(1e-4));
        CHECK(with.rows[i][Metric::loss_scale] == plain.rows[i][Metric::loss_scale]);
        REQUIRE(with.rows[i][Metric::grad_norm].has_value() == plain.rows[i][Metric::grad_norm].has_value());
        const double norm = plain.rows[i][Metric::grad_norm].value_or(0),
                     fused_norm = with.rows[i][Metric::grad_norm].value_or(0);
        CHECK(std::isfinite(fused_norm) == std::isfinite(norm));
        if (std::isfinite(norm)) CHECK(fused_norm == Approx(norm).epsilon(2e-3));
      }
      for (size_t i = 0; i < plain.weights.size(); ++i)
        CHECK(at::allclose(with.weights[i].second, plain.weights[i].second, 1e-3, 1e-4));
    }
  }
}

TEST_CASE("training with 16-bit weight copies is bit-identical to autocast's casts and has no casts") {
  struct Way {
    std::string name;
    std::function<void(Recipe&)> turn_on;
    std::string fault;
  };
  const std::vector<Way> ways = {
      {"mlp, bfloat16", [](Recipe& r) { r.optimizations.amp.on = true; }, ""},
      {"mlp, float16",
       [](Recipe& r) {
         r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 1 << 20, .growth_interval = 3}};
       },
       ""},
      {"three micro-batches, adamw",
       [](Recipe& r) {
         r.optimizations.amp.on = true, r.train.gradient_accumulation_steps = 3, r.optimizer = AdamWConfig(),
         r.data.batch_size = 4;
       },
       ""},
      {"a skipped step", [](Recipe& r) { r.optimizations.amp.on = true, r.train.on_nonfinite = OnNonfinite::skip; },
       "nan@4"},
      {"a repeated step",
       [](Recipe& r) {
         r.optimizations.amp.on = true, r.train.on_nonfinite = OnNonfinite::abort, r.optimizations.set_to_none = true;
       },
       "oom@4"},
      {"resnet18",
       [](Recipe& r) {
         r.model = {.name = ModelKind::resnet18, .stem = StemKind::cifar};
         r.optimizations.amp.on = r.optimizations.channels_last = true;
         r.train.max_steps = 4;
       },
       ""},
  };
  for (const Way& way : ways) {
    DYNAMIC_SECTION(way.name) {
      Recipe recipe = small_recipe();
      recipe.optimizations.fused_optimizer = true;
      way.turn_on(recipe);
      const auto run = [&](bool copies) {
        return train(recipe, [&](Plan& plan) {
          if (!copies) plan.tensor_format.compute_type = at::kFloat;
          DataPlan data = plan.data;
          data.shuffle = false;
          plan.evaluation = EvaluationPlan{.every_n_steps = 3, .at_end = true, .data = data};
          if (!way.fault.empty()) inject(plan, {parse_injection(way.fault)});
        });
      };
      const Result with = run(true), without = run(false);
      const auto losses = [](const Result& result) {
        std::string text;  // so that NaN equals NaN
        for (const StepRecord& row : result.rows) text += fmt::format("{:.17g} ", *row[Metric::loss]);
        return text;
      };
      CHECK(losses(with) == losses(without));
      for (size_t i = 0; i < with.weights.size(); ++i) CHECK(with.weights[i].second.equal(without.weights[i].second));
      REQUIRE(with.evaluation.has_value());
      CHECK(with.evaluation->loss == without.evaluation->loss);
      CHECK(fused_optimizer::casts_of_parameters(with.seen) == 0);
      CHECK(fused_optimizer::update_of(with.seen).copies > 0);
      CHECK(fused_optimizer::casts_of_parameters(without.seen) ==
            fused_optimizer::update_of(with.seen).copies * recipe.train.gradient_accumulation_steps.value_or(1));
      CHECK_THAT(with.receipt, ContainsSubstring("parameters kept, 0 parameter casts in the step"));
      CHECK_THAT(without.receipt, !ContainsSubstring("16-bit"));
    }
  }
}

TEST_CASE("after a resume, 16-bit weight copies match the checkpoint") {
  Recipe recipe = small_recipe();
  recipe.optimizations.fused_optimizer = recipe.optimizations.amp.on = true;
  recipe.optimizer = GENERATE(OptimizerConfig(SgdConfig{.lr = 0.05, .momentum = 0}), OptimizerConfig(AdamWConfig()));
  const Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  const PartialRun uninterrupted = train_part(plan), resumed = train_in_two(plan, plan, 4);
  CHECK(resumed.losses == uninterrupted.losses);
  CHECK(first_difference(resumed.state, uninterrupted.state) == "");
}

TEST_CASE("the fused and the loop optimizer read each other's checkpoints") {
  const OptimizerConfig config = GENERATE(OptimizerConfig(SgdConfig{.lr = 0.05}), OptimizerConfig(AdamWConfig()));
  const bool first_fused = GENERATE(false, true);
  Recipe recipe = small_recipe();
  recipe.optimizer = config;
  const auto plan = [&](bool on) {
    recipe.optimizations.fused_optimizer = on;
    return make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  };
  const PartialRun uninterrupted = train_part(plan(false)),
                   resumed = train_in_two(plan(first_fused), plan(!first_fused), 4);
  REQUIRE(resumed.losses.size() == uninterrupted.losses.size());
  for (size_t i = 0; i < uninterrupted.losses.size(); ++i)
    CHECK(resumed.losses[i] == Approx(uninterrupted.losses[i]).epsilon(1e-4));
}

}  // namespace fused_optimizer_tests
