// Weights in bfloat16: how they are rounded, which parameters they are, and what they can be combined with.
#include "optimizations/precision/precision.h"

#include "base/philox.h"
#include "model/weights_file.h"
#include "optimizations/precision/stochastic_rounding.h"
#include "recipe/validate.h"
#include "support/catch.h"
#include "support/parameters.h"
#include "support/resuming.h"
#include "support/small_gpt2.h"
#include "support/trained_ranks.h"

#include <limits>

namespace precision_tests {

using namespace trainopt;
using namespace trainopt::test;
using Catch::Matchers::StartsWith;

namespace {

constexpr int64_t kHalves = 1 << 16;

/// Every number of 16 bits once.
at::Tensor all_halves() { return at::arange(0, kHalves, at::kInt); }

/// How many of all 2^16 random numbers lead from `value` to each result.
std::map<double, int64_t> outcomes(float value) {
  const at::Tensor rounded =
      precision::rounded_stochastically(at::full({kHalves}, value), all_halves()).to(at::kDouble);
  std::map<double, int64_t> counts;
  for (int64_t i = 0; i < kHalves; ++i) ++counts[rounded.const_data_ptr<double>()[i]];
  return counts;
}

Recipe small_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.num_threads = 1;
  use_gpt2(recipe);
  recipe.data.batch_size = 8;
  recipe.train.max_steps = 3;
  recipe.optimizer = AdamWConfig();
  recipe.optimizations.amp.on = recipe.optimizations.precision.on = true;
  return recipe;
}

Plan plan_of(const Recipe& recipe) { return make_plan(recipe, Machine{.cpu = "test", .cores = 2}); }

std::set<std::string> in_bfloat16(const NamedTensors& tensors) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors)
    if (tensor.scalar_type() == at::kBFloat16) names.insert(name);
  return names;
}

const PlannedSwitch& planned(const Plan& plan) {
  for (const PlannedSwitch& each : plan.switches)
    if (each.name == "precision") return each;
  throw std::runtime_error("precision is off");
}

std::string problem(const std::function<void(Recipe&)>& change) {
  Recipe recipe = small_recipe();
  change(recipe);
  const auto problems = validate(recipe, 2);
  return problems.size() == 1 ? problems[0].key + ": " + problems[0].message
                              : fmt::format("{} problems", problems.size());
}

/// A weight of 1 in float32 gradients' way: after `steps` of SGD with the gradient 1.
at::Tensor trained_weights(at::ScalarType type, double learning_rate, int64_t steps,
                           std::unique_ptr<WeightRounding> rounding, int64_t& steps_done) {
  FixedParameters store({{"w", at::ones({kHalves}, type)}});
  const auto optimizer =
      make_loop_optimizer(SgdConfig{.lr = learning_rate, .momentum = 0}, store, {}, std::move(rounding));
  for (steps_done = 0; steps_done < steps; ++steps_done) {
    store.parameters()[0].second.mutable_grad() = at::ones({kHalves}, type);
    optimizer->step(store.finish_gradients(), {});
  }
  return store.parameters()[0].second.detach().to(at::kDouble);
}

}  // namespace

TEST_CASE("random halves are those of Philox, by tensor operations too") {
  for (const uint64_t step : {uint64_t{0}, (uint64_t{7} << 32) + 5})
    for (const int64_t count : {1, 7, 8, 9, 70'000}) {
      const uint64_t key = mix_key(3, "weight");
      const at::Tensor fast = precision::random_halves({.count = count}, key, step, at::kCPU);
      CHECK(fast.sizes() == at::IntArrayRef{count});
      CHECK(fast.equal(precision::random_halves_by_operations({.count = count}, key, step, at::kCPU)));
      for (const int64_t first : {int64_t{1}, int64_t{8}, count / 2}) {
        if (first >= count) continue;
        const precision::HalvesRange rest{.first = first, .count = count - first};
        CHECK(precision::random_halves(rest, key, step, at::kCPU).equal(fast.narrow(0, first, rest.count)));
        CHECK(
            precision::random_halves_by_operations(rest, key, step, at::kCPU).equal(fast.narrow(0, first, rest.count)));
      }
      for (int64_t i = 0; i < count; i += std::max<int64_t>(1, count / 16)) {
        const auto index = static_cast<uint64_t>(i);
        const uint32_t word = philox(key, step, index / 8)[index % 8 / 2];
        CHECK(static_cast<uint32_t>(fast[i].item<int32_t>()) == (index % 2 == 0 ? word & 0xffff : word >> 16));
      }
    }
}

TEST_CASE("a value is rounded to its two neighbours with a mean that is exact") {
  for (const float value :
       {1.0009765625f, -1.0009765625f, 0.9999f, -3.14159f, 1.1754e-38f, 3e-41f, 255.99f, 3.38e38f}) {
    INFO(value);
    const auto counts = outcomes(value);
    REQUIRE(counts.size() == 2);
    double mean = 0;
    for (const auto& [result, times] : counts)
      mean += result * static_cast<double>(times) / static_cast<double>(kHalves);
    CHECK(mean == static_cast<double>(value));
    CHECK(counts.begin()->first < value);
    CHECK(value < counts.rbegin()->first);
    const double apart = counts.rbegin()->first - counts.begin()->first;
    CHECK(apart <= std::max(std::abs(static_cast<double>(value)) * 0x1p-7, 0x1p-133));
  }
}

TEST_CASE("values that bfloat16 has, infinities and NaN stay as they are, whatever the random number") {
  const at::Tensor every = all_halves().bitwise_left_shift(16).view(at::kFloat);  // every bfloat16 there is
  for (const int half : {0, 1, 0x8000, 0xffff}) {
    const at::Tensor rounded =
        precision::rounded_stochastically(every, at::full({kHalves}, half, at::kInt)).to(at::kFloat);
    const at::Tensor numbers = every.isnan().logical_not();
    CHECK(rounded.view(at::kInt).masked_select(numbers).equal(every.view(at::kInt).masked_select(numbers)));
    CHECK(rounded.isnan().equal(every.isnan()));
  }
  for (const float sign : {1.0f, -1.0f}) {
    const float infinity = sign * std::numeric_limits<float>::infinity();
    CHECK(outcomes(infinity) == std::map<double, int64_t>{{static_cast<double>(infinity), kHalves}});
    // Nearer to 2^128 than to the largest bfloat16 by all but one of 2^16 parts.
    CHECK(outcomes(sign * std::numeric_limits<float>::max()).at(static_cast<double>(infinity)) == kHalves - 1);
  }
}

TEST_CASE("updates below half a step of bfloat16 vanish when rounded to nearest, and not on average otherwise") {
  // The steps of bfloat16 below 1 are 2^-8 apart, so the nearest value to 1 - 2^-10 is 1.
  constexpr double kUpdate = 0x1p-10;
  constexpr int64_t kSteps = 64;
  int64_t steps_done = 0;
  const auto trained = [&](at::ScalarType type, std::unique_ptr<WeightRounding> rounding) {
    return trained_weights(type, kUpdate, kSteps, std::move(rounding), steps_done);
  };
  const at::Tensor exact = trained(at::kFloat, std::make_unique<NearestRounding>());
  CHECK(exact.eq(1 - kSteps * kUpdate).all().item<bool>());
  CHECK(trained(at::kBFloat16, std::make_unique<NearestRounding>()).eq(1).all().item<bool>());

  const at::Tensor mean = trained(at::kBFloat16, precision::make_stochastic_rounding(5, &steps_done)).mean();
  // One step's variance is 3/16 of 2^-16; the mean of 2^16 weights after 64 of them has a deviation of 5.3e-5.
  CHECK(mean.item<double>() == Approx(1 - kSteps * kUpdate).margin(5e-4));
}

TEST_CASE("random numbers differ from step to step and from parameter to parameter, and repeat in a repeated step") {
  int64_t steps_done = 4;
  const auto rounding = precision::make_stochastic_rounding(5, &steps_done);
  const at::Tensor values = at::full({64}, 1.002f);
  const auto rounded = [&](const std::string& name) {
    const at::Tensor result = at::zeros({64}, at::kBFloat16);
    rounding->store(name, values, result);
    return result;
  };
  const at::Tensor first = rounded("a");
  CHECK(first.equal(rounded("a")));
  CHECK_FALSE(first.equal(rounded("b")));
  ++steps_done;
  CHECK_FALSE(first.equal(rounded("a")));

  // By index, not by place in memory.
  const at::Tensor image = at::full({2, 3, 4, 4}, 1.002f), nhwc = image.contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor by_row = at::empty_like(image, at::kBFloat16), by_pixel = at::empty_like(nhwc, at::kBFloat16);
  rounding->store("c", image, by_row);
  rounding->store("c", nhwc, by_pixel);
  CHECK(by_row.equal(by_pixel));
}

TEST_CASE("a large parameter is rounded piece by piece to the same bits as at once") {
  const int64_t steps_done = 0;
  const auto rounding = precision::make_stochastic_rounding(5, &steps_done);
  const at::Tensor rows = at::full({2'000'003, 5}, 1.002f), result = at::empty_like(rows, at::kBFloat16);
  rounding->store("large", rows, result);  // 10,000,015 values; rows of 5 put the pieces' ends inside Philox blocks
  const at::Tensor at_once = at::empty({1, rows.numel()}, at::kBFloat16);
  rounding->store("large", rows.view({1, -1}), at_once);  // one row is one piece
  CHECK(result.flatten().equal(at_once[0]));
}

TEST_CASE("a skipped update changes neither bfloat16 weights nor state") {
  int64_t steps_done = 0;
  FixedParameters store({{"w", at::randn({50, 50}).to(at::kBFloat16)}});
  const at::Tensor weight = store.parameters()[0].second;
  const auto config = GENERATE(OptimizerConfig(SgdConfig()), OptimizerConfig(AdamWConfig()));
  const auto optimizer = make_loop_optimizer(config, store, {}, precision::make_stochastic_rounding(1, &steps_done));
  const auto step = [&](double skip) {
    weight.mutable_grad() = at::randn({50, 50}).to(at::kBFloat16);
    optimizer->step(store.finish_gradients(), at::full({}, skip, at::kFloat));
    ArchiveWriter archive;
    optimizer->save(archive);
    NamedTensors all{{"w", weight.detach().clone()}};
    for (const auto& [name, tensor] : archive.tensors()) all.emplace_back(name, tensor.clone());
    return all;
  };
  const NamedTensors before = step(0);
  CHECK(first_difference(before, step(1)) == "");
  CHECK(first_difference(before, step(0)) != "");
  for (const auto& [name, tensor] : before)
    if (name.ends_with(".w")) CHECK(tensor.scalar_type() == at::kFloat);  // momentum and the like
}

TEST_CASE("matrices and embeddings are bfloat16; norms, biases and what keep_float32 names are float32") {
  const auto trained = [](std::vector<std::string> keep) {
    Recipe recipe = small_recipe();
    recipe.optimizations.precision.options.keep_float32 = std::move(keep);
    Rows rows;
    Trainer trainer(plan_of(recipe), {}, rows, never_stopped());
    trainer.run();
    for (const double loss : rows.losses()) CHECK(std::isfinite(loss));
    for (const auto& [name, parameter] : trainer.parts().model().parameters())
      CHECK(parameter.grad().scalar_type() == parameter.scalar_type());
    return in_bfloat16(trainer.weights());
  };
  const std::string block = "transformer.h.1.";
  const auto all = trained({});
  CHECK(all.size() == 10);  // two embeddings, and four matrices in each of two blocks
  CHECK(all.contains("transformer.wte.weight"));
  CHECK(all.contains(block + "mlp.c_fc.weight"));
  CHECK_FALSE(all.contains(block + "mlp.c_fc.bias"));
  CHECK_FALSE(all.contains(block + "ln_1.weight"));
  CHECK(trained({"embedding"}).size() == 8);
  CHECK(trained({"transformer.h.1"}).size() == 6);
  CHECK(trained({"transformer.embedding", block + "mlp.c_fc"}).size() == 7);
  const auto tied = trained({"lm_head"});  // the unit has only the embedding's matrix
  CHECK(tied.size() == 9);
  CHECK_FALSE(tied.contains("transformer.wte.weight"));
  CHECK(trained({"norm", "bias"}) == all);
}

TEST_CASE("a unit in keep_float32 that the model does not have is an error that names the units") {
  Recipe recipe = small_recipe();
  recipe.optimizations.precision.options.keep_float32 = {"lm_head", "head"};
  CHECK_THROWS_WITH(plan_of(recipe),
                    "optimizations.precision.keep_float32: the model has no such unit or parameter; use norm, bias, "
                    "embedding, a parameter such as transformer.ln_f.bias or one of the units transformer.embedding, "
                    "transformer.h.0, transformer.h.1, transformer.ln_f, lm_head: head");
}

TEST_CASE("the receipt has the bytes and the types that the step had") {
  Recipe recipe = small_recipe();
  Rows rows;
  const Plan plan = plan_of(recipe);
  CHECK_THAT(planned(plan).outcome.text,
             ContainsSubstring("10 of 28 parameter tensors are bfloat16, 14,904 of 15,576 values, rounded "
                               "stochastically: 29.1 KiB less for weights and as much for gradients"));
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  const StepTrace& trace = trainer.outcome().trace;
  CHECK(trace.parameter_bytes == 4 * 15'576 - 2 * 14'904);
  CHECK(trace.gradient_bytes == trace.parameter_bytes);
  CHECK(trace.optimizer_bytes == 2 * 4 * 15'576);
  const Receipt receipt = planned(plan).outcome.receipt(trace);
  CHECK(receipt.effective);
  CHECK(receipt.observed ==
        "10 of 28 parameter tensors rounded stochastically to bfloat16, 14,904 of 15,576 values; weights take 31.7 KiB "
        "instead of 60.8 KiB");
  StepTrace none = trace;
  none.operations.clear();
  CHECK_FALSE(planned(plan).outcome.receipt(none).effective);
}

TEST_CASE("what bfloat16 weights cannot be combined with is refused with the reason") {
  CHECK(problem([](Recipe&) {}) == "0 problems");
  CHECK_THAT(problem([](Recipe& r) { r.optimizations.amp.on = false; }),
             StartsWith("optimizations.precision: needs optimizations.amp: true"));
  CHECK_THAT(problem([](Recipe& r) { r.optimizations.amp.options.dtype = amp::Type::float16; }),
             StartsWith("optimizations.precision: needs optimizations.amp: true"));
  CHECK_THAT(problem([](Recipe& r) { r.optimizations.fused_optimizer = true; }),
             StartsWith("optimizations.fused_optimizer: its kernels update float32 weights only"));
  CHECK_THAT(problem([](Recipe& r) { r.parallel.sharding_strategy = ShardingStrategy::zero2; }),
             StartsWith("parallel.sharding_strategy: zero1, zero2, zero3 and hybrid keep"));
  CHECK_THAT(problem([](Recipe& r) { r.parallel.async_updates.staleness = 1; }),
             StartsWith("parallel.async_updates.staleness: all gradients are sent in one tensor"));
  CHECK_THAT(problem([](Recipe& r) { r.parallel.gradient_dtype = WireType::float32; }),
             StartsWith("parallel.gradient_dtype: the gradients of bfloat16 weights are bfloat16"));
}

TEST_CASE("without amp's bfloat16 the switch has no effect, and says why") {
  Recipe recipe = small_recipe();
  recipe.optimizations.amp.on = false;
  const Plan plan = plan_of(recipe);
  CHECK_FALSE(planned(plan).outcome.has_effect);
  CHECK_THAT(planned(plan).outcome.text, ContainsSubstring("does not compute in bfloat16"));
  CHECK(plan.model.in_bfloat16.empty());
}

TEST_CASE("two ranks keep equal bfloat16 weights and train as one rank does") {
  Recipe recipe = small_recipe();
  recipe.parallel.check_replicas_every = 1;
  recipe.train.max_steps = 6;
  const Trained two = train_as(2, recipe);
  recipe.parallel.check_replicas_every = 0;
  recipe.data.batch_size *= 2;
  const Trained one = train_as(1, recipe);
  CHECK(in_bfloat16(two.weights).size() == 10);
  REQUIRE(two.losses.size() == one.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) CHECK(two.losses[i] == Approx(one.losses[i]).epsilon(1e-2));
  for (const SwitchReceipt& each : two.receipts) {
    INFO(each.name << ": " << each.receipt.observed);
    CHECK(each.receipt.reason == "");
  }
}

TEST_CASE("weights of a run continue another run, in bfloat16 or in float32") {
  const TemporaryFolder folder;
  const std::string file = (folder / "weights.safetensors").string();
  Recipe recipe = small_recipe();
  Rows rows;
  Trainer trainer(plan_of(recipe), {}, rows, never_stopped());
  trainer.run();
  save_tensors(file, trainer.weights());
  recipe.model.weights = file;
  const auto first = [](const Recipe& from) { return plan_of(from).build_model(); };
  const auto bfloat16 = first(recipe);
  recipe.optimizations.precision.on = false;
  const auto float32 = first(recipe);
  for (size_t i = 0; i < bfloat16->parameters().size(); ++i) {
    const at::Tensor trained = trainer.parts().model().parameters()[i].second;
    CHECK(trained.equal(bfloat16->parameters()[i].second));
    CHECK(trained.to(at::kFloat).equal(float32->parameters()[i].second));
  }
}

TEST_CASE("a checkpoint of other types is refused") {
  Recipe recipe = small_recipe();
  const Plan bfloat16 = plan_of(recipe);
  recipe.optimizations.precision.on = false;
  const Plan float32 = plan_of(recipe);
  CHECK_THROWS_WITH(
      train_in_two(bfloat16, float32, 2),
      ContainsSubstring("model.transformer.wte.weight is bfloat16 [29, 24] there but float32 [29, 24] here"));
}

}  // namespace precision_tests
