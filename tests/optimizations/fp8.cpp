// Linear layers in 8 bits. On CPUs libtorch computes products with one scale per tensor; those with scales of rows are
// emulated, and tests/gpu/fp8.cpp compares them with a GPU's.
#include "device/autocast.h"
#include "device/tensor.h"
#include "optimizations/fp8/amax_history.h"
#include "optimizations/fp8/linear.h"
#include "support/autograd.h"
#include "support/catch.h"
#include "support/resuming.h"
#include "support/small_gpt2.h"
#include "support/trained_ranks.h"

namespace fp8_tests {

using namespace trainopt;
using namespace trainopt::test;
using fp8::Scaling;

namespace {

const auto kOwnAmax = [](const at::Tensor&, fp8::Operand, const at::Tensor& current, bool) { return current; };

fp8::ScaledMatrix quantised(const at::Tensor& matrix, Scaling scaling, at::ScalarType format = fp8::kE4m3) {
  return fp8::quantise(matrix, format, fp8::amax(matrix, scaling));
}

/// What a matrix is after rounding, in float32.
at::Tensor rounded(const at::Tensor& matrix, Scaling scaling, at::ScalarType format = fp8::kE4m3) {
  const auto scaled = quantised(matrix.contiguous(), scaling, format);
  return scaled.values.to(at::kFloat) * scaled.scale;
}

/// Values of both signs whose magnitudes lie between 0.1 and 1, so that none is rounded to zero.
at::Tensor values(at::IntArrayRef sizes) {
  const at::Tensor uniform = at::rand(sizes) * 2 - 1;
  return uniform * 0.9 + 0.1 * uniform.sign();
}

void check_within(const at::Tensor& got, const at::Tensor& wanted, const at::Tensor& bound) {
  const at::Tensor excess = (got.to(at::kFloat) - wanted.to(at::kFloat)).abs() - bound;
  CHECK(excess.max().item<double>() <= 0);
}

/// The output of a layer and the gradients of input, weight and bias.
struct Results {
  at::Tensor y, dx, dw, db;
};

struct Case {
  at::Tensor x, w, b, dy;
  explicit Case(int64_t rows = 33)
      : x(values({rows, 32})), w(values({48, 32})), b(values({48})), dy(values({rows, 48})) {}

  Results results(const LinearOperations& operations) const {
    const at::Tensor xs = x.detach().requires_grad_(), ws = w.detach().requires_grad_(),
                     bs = b.detach().requires_grad_();
    const at::Tensor y = operations.linear(xs, {.weight = ws, .bias = bs, .parameter = ws});
    const auto gradients = torch::autograd::grad({y}, {xs, ws, bs}, {dy.to(y.scalar_type())});
    return {y.detach(), gradients[0], gradients[1], gradients[2]};
  }
};

/// 1e-5 of what the terms of a · bᵀ add up to without their signs: another order of sums.
at::Tensor order_of_sums(const at::Tensor& a, const at::Tensor& b) { return 1e-5 * at::mm(a.abs(), b.abs().t()); }

Recipe recipe_of(const std::string& scaling, int64_t history = 0) {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.num_threads = 1;
  use_gpt2(recipe);
  recipe.model.width = 32;
  recipe.data.batch_size = 8;
  AdamWConfig adamw;
  adamw.lr = 0.01;
  recipe.optimizer = adamw;
  recipe.train.max_steps = 6;
  recipe.optimizations.fp8.on = scaling != "off";
  recipe.optimizations.fp8.options = {scaling == "rowwise" ? Scaling::rowwise : Scaling::tensorwise, history};
  return recipe;
}

Outcome outcome_on(
    const std::string& machine, const std::function<void(Recipe&)>& change = [](Recipe&) {}) {
  Recipe recipe = recipe_of("tensorwise");
  recipe.device = "cuda";
  change(recipe);
  const Plan plan = make_plan(recipe, assume(Machine{}, machine).machine);
  return std::find_if(plan.switches.begin(), plan.switches.end(), [](const auto& s) { return s.name == "fp8"; })
      ->outcome;
}

}  // namespace

TEST_CASE("a matrix is scaled to the format's range and rounded to its bits") {
  at::manual_seed(1);
  const at::Tensor matrix = values({16, 32}) * at::arange(1, 17).unsqueeze(1);
  for (const auto scaling : {Scaling::tensorwise, Scaling::rowwise})
    for (const auto& [format, largest, half_step] :
         {std::tuple{fp8::kE4m3, 448.0, 1.0 / 16}, {fp8::kE5m2, 57344.0, 1.0 / 8}}) {
      const auto [numbers, scale] = quantised(matrix, scaling, format);
      CHECK(numbers.scalar_type() == format);
      const bool by_row = scaling == Scaling::rowwise;
      CHECK(scale.sizes() == at::IntArrayRef({by_row ? 16 : 1, 1}));
      const at::Tensor reached = by_row ? numbers.to(at::kFloat).abs().amax(1) : numbers.to(at::kFloat).abs().amax();
      CHECK(reached.eq(largest).all().item<bool>());
      check_within(numbers.to(at::kFloat) * scale, matrix, half_step * matrix.abs());
    }
}

TEST_CASE("zeros stay zeros, larger values saturate, and a matrix that is not finite has no finite products") {
  const at::Tensor zeros = at::zeros({16, 16});
  CHECK(rounded(zeros, Scaling::rowwise).equal(zeros));
  const auto saturated = fp8::quantise(at::full({16, 16}, 3.0), fp8::kE4m3, at::full({1, 1}, 2.0));
  CHECK((saturated.values.to(at::kFloat) * saturated.scale).equal(at::full({16, 16}, 2.0)));
  for (const double broken : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    at::Tensor matrix = at::ones({16, 16});
    matrix[3][5] = broken;
    const auto product = fp8::product(quantised(matrix, Scaling::tensorwise, fp8::kE5m2),
                                      quantised(at::ones({16, 16}), Scaling::tensorwise), at::kFloat, fp8::Sums::fast);
    CHECK_FALSE(product.isfinite().any().item<bool>());
  }
}

TEST_CASE("a transpose is filled up with zeros to a multiple of 16 columns") {
  const at::Tensor matrix = quantised(values({33, 32}), Scaling::tensorwise).values, got = fp8::transposed(matrix);
  CHECK(got.sizes() == at::IntArrayRef({32, 48}));
  CHECK(got.is_contiguous());
  CHECK(got.narrow(1, 0, 33).to(at::kFloat).equal(matrix.to(at::kFloat).t()));
  CHECK_FALSE(got.narrow(1, 33, 15).to(at::kFloat).any().item<bool>());
}

TEST_CASE("libtorch's products agree with their emulation, for both formats") {
  at::manual_seed(2);
  const at::Tensor a = at::randn({33, 48}), b = at::randn({64, 48});
  for (const auto of_a : {fp8::kE4m3, fp8::kE5m2})
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const auto x = quantised(a, Scaling::tensorwise, of_a), y = quantised(b, Scaling::tensorwise);
      const at::Tensor got = fp8::product(x, y, type, fp8::Sums::fast),
                       wanted = fp8::emulated_product(x, y, type, fp8::Sums::fast);
      CHECK(got.scalar_type() == type);
      const double u = type == at::kFloat      ? 0
                       : type == at::kBFloat16 ? 1.0 / 128
                                               : 1.0 / 1024;  // one place of the type
      check_within(got, wanted, order_of_sums(a, b) + u * wanted.to(at::kFloat).abs());
    }
}

TEST_CASE("outputs and gradients are those of the rounded operands, in both recipes and with any number of rows") {
  at::manual_seed(3);
  for (const int64_t rows : {16, 33, 1})
    for (const auto scaling : {Scaling::tensorwise, Scaling::rowwise}) {
      INFO(rows << " rows, " << word_of(scaling));
      const Case given(rows);
      const auto& [x, w, b, dy] = given;
      const auto of_dy = scaling == Scaling::rowwise ? fp8::kE4m3 : fp8::kE5m2;
      const auto of = [&](const at::Tensor& matrix) { return rounded(matrix, scaling); };
      const auto of_gradient = [&](const at::Tensor& matrix) { return rounded(matrix, scaling, of_dy); };
      for (const auto product : {fp8::product, fp8::emulated_product}) {
        if (scaling == Scaling::rowwise && product == fp8::product) continue;  // libtorch refuses it on a CPU
        const Results got = given.results(*fp8::make_linear(scaling, product, kOwnAmax));
        check_within(got.y, at::mm(of(x), of(w).t()) + b, order_of_sums(x, w));
        check_within(got.dx, at::mm(of_gradient(dy), of(w.t()).t()), order_of_sums(dy, w.t()));
        check_within(got.dw, at::mm(of_gradient(dy.t()), of(x.t()).t()), order_of_sums(dy.t(), x.t()));
        CHECK(at::allclose(got.db, dy.sum(0), 1e-5, 1e-5));
      }
    }
}

TEST_CASE("outputs and gradients differ from float32 by no more than the formats round") {
  at::manual_seed(4);
  const Case given;
  const auto& [x, w, b, dy] = given;
  const Results wanted = given.results(PlainLinearOperations());
  const double e4m3 = 1.0 / 16, e5m2 = 1.0 / 8, both = (1 + e4m3) * (1 + e4m3) - 1;
  for (const auto scaling : {Scaling::tensorwise, Scaling::rowwise}) {
    const double backward = scaling == Scaling::rowwise ? both : (1 + e4m3) * (1 + e5m2) - 1;
    const Results got = given.results(*fp8::make_linear(scaling, fp8::emulated_product, kOwnAmax));
    check_within(got.y, wanted.y, both * at::mm(x.abs(), w.abs().t()));
    check_within(got.dx, wanted.dx, backward * at::mm(dy.abs(), w.abs()));
    check_within(got.dw, wanted.dw, backward * at::mm(dy.abs().t(), x.abs()));
    CHECK_FALSE(at::allclose(got.y, wanted.y, 1e-4, 1e-4));  // it did round
  }
}

TEST_CASE("under autocast outputs and input gradients are bfloat16, and weight gradients keep the weight's type") {
  at::manual_seed(5);
  const Case given;
  for (const auto scaling : {Scaling::tensorwise, Scaling::rowwise}) {
    const auto operations = fp8::make_linear(scaling, fp8::emulated_product, kOwnAmax);
    const Results in_float32 = given.results(*operations);
    const AutocastGuard autocast(at::kCPU, at::kBFloat16);
    const Results got = given.results(*operations);
    CHECK(got.y.scalar_type() == at::kBFloat16);
    CHECK(got.dw.scalar_type() == at::kFloat);
    const auto close = [](const at::Tensor& a, const at::Tensor& b) {
      return (a.to(at::kFloat) - b).norm().item<double>() < 0.05 * b.norm().item<double>();
    };
    CHECK(close(got.y, in_float32.y));
    CHECK(close(got.dx, in_float32.dx));
    CHECK(close(got.dw, in_float32.dw));
  }
}

TEST_CASE("the emulation's products are not rounded by autocast") {
  at::manual_seed(6);
  const at::Tensor x = values({16, 32}), w = values({48, 32});
  const auto operations = fp8::make_linear(Scaling::tensorwise, fp8::emulated_product, kOwnAmax);
  const AutocastGuard autocast(at::kCPU, at::kBFloat16);
  const at::Tensor got = operations->linear(x.to(at::kBFloat16), {w, {}, w}),
                   wanted = at::matmul(rounded(x.to(at::kBFloat16).to(at::kFloat), Scaling::tensorwise).to(at::kDouble),
                                       rounded(w, Scaling::tensorwise).t().to(at::kDouble));
  CHECK(got.equal(wanted.to(at::kFloat).to(at::kBFloat16)));
}

TEST_CASE("layers whose sizes are not divisible by 16 are libtorch's") {
  at::manual_seed(7);
  const auto operations = fp8::make_linear(Scaling::tensorwise, fp8::product, kOwnAmax);
  for (const auto& [in, out] : {std::pair{40, 48}, {48, 10}}) {
    const at::Tensor x = at::randn({16, in}), w = at::randn({out, in}), b = at::randn({out});
    CHECK(operations->linear(x, {w, b, w}).equal(at::linear(x, w, b)));
  }
}

TEST_CASE("fp8 needs a GPU from sm_89 and layers of suitable sizes") {
  CHECK(outcome_on("gpus=1,arch=sm_89").has_effect);
  const Outcome ampere = outcome_on("gpus=1,arch=sm_80");
  CHECK_FALSE(ampere.has_effect);
  CHECK(ampere.text == "fp8 needs a GPU from sm_89; this one is sm_80");
  const Outcome odd = outcome_on("gpus=1,arch=sm_90", [](Recipe& r) { r.model.width = 36, r.model.layers = 1; });
  CHECK(odd.text ==
        "fp8 needs linear layers with sizes divisible by 16; the gpt2 has 36 → 108, 36 → 36, 36 → 144, 144 → 36");
  CHECK_THROWS_WITH(
      outcome_on("gpus=1,arch=sm_80", [](Recipe& r) { r.strict = true; }),
      ContainsSubstring("fp8 has no effect here, which strict: true forbids: fp8 needs a GPU from sm_89"));
  const auto problems = check_optimizations(recipe_of("rowwise", 4));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].key == "optimizations.fp8.amax_history");
}

TEST_CASE("the receipt of fp8 counts layers, those of other sizes, and gradients") {
  Recipe recipe = recipe_of("tensorwise");
  recipe.data = {.batch_size = 8};
  recipe.data.size = 48;
  recipe.model = {.name = ModelKind::mlp, .hidden = {32, 16}};
  recipe.train.gradient_accumulation_steps = 2;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 8}, NormalizeConfig{}};
  for (const auto& [name, requested, receipt] : train_as(1, recipe).receipts)
    if (name == "fp8") {
      CHECK(receipt.observed ==
            "4 of 6 linear layers ran in fp8 (2 with sizes not divisible by 16), 4 of their gradients; by libtorch");
      CHECK(receipt.effective);
    }
}

TEST_CASE("matrix products in 8 bits are counted as such") {
  const Recipe recipe = recipe_of("tensorwise");
  const auto calls = multiplications_by_type(train_as(1, recipe).trace);
  CHECK(calls.at("float8_e4m3fn") == 8);    // four layers in each of two blocks
  CHECK(calls.at("float8_e5m2") == 2 * 8);  // the gradients of their inputs and weights
}

TEST_CASE("a language model learns in fp8 as it does in float32 and in bfloat16") {
  const auto last_loss = [](Recipe recipe) {
    recipe.train.max_steps = 60;
    const std::vector<double> losses = train_as(1, recipe).losses;
    CHECK(losses.front() > 3.3);  // log 29 = 3.37
    return (losses[57] + losses[58] + losses[59]) / 3;
  };
  const double wanted = last_loss(recipe_of("off"));
  CHECK(wanted < 2.5);
  Recipe in_bfloat16 = recipe_of("tensorwise", 4);
  in_bfloat16.optimizations.amp.on = in_bfloat16.optimizations.fused_kernels = true;
  for (const Recipe& recipe : {recipe_of("tensorwise"), recipe_of("rowwise"), in_bfloat16})
    CHECK(last_loss(recipe) == Approx(wanted).epsilon(0.05));
}

namespace {

/// A model with one linear layer, of 16 × 16, and its history.
struct History {
  Plan plan{Machine{}, at::kCPU, SgdConfig{}};
  std::unique_ptr<Communicator> communicator = make_single_communicator();
  Model model = make_model({.name = ModelKind::mlp, .num_classes = 16, .hidden = {}}, {1, 4, 4}, at::kCPU, 0);
  fp8::AmaxHistory history{{.plan = plan, .device = at::kCPU, .model = &model, .replicas = communicator.get()}, 3};

  /// The magnitude by which an input is scaled whose own is `current`.
  double choose(double current, bool is_counted = true) {
    return history
        .choose(model.parameters()[0].second, fp8::Operand::input, at::full({1, 1}, current, at::kFloat), is_counted)
        .item<double>();
  }
  /// The same, as the only one of a step.
  double step(double current) {
    const double chosen = choose(current);
    history.update({});
    return chosen;
  }
};

}  // namespace

TEST_CASE("delayed scaling takes the largest magnitude of the last steps") {
  History given;
  std::vector<double> seen;
  for (const double current : {4.0, 9.0, 1.0, 2.0, 3.0, 8.0, 1.0}) {
    const auto last = std::vector(seen.end() - std::min<int64_t>(3, static_cast<int64_t>(seen.size())), seen.end());
    const double wanted = last.empty() ? current : *std::max_element(last.begin(), last.end());
    CHECK(given.step(current) == wanted);
    seen.push_back(current);
  }
}

TEST_CASE("a step's magnitude is the largest of its micro-batches, without evaluations and steps that are undone") {
  History given;
  CHECK(given.choose(2) == 2);
  CHECK(given.choose(7) == 7);
  CHECK(given.choose(5) == 5);
  CHECK(given.choose(50, /*is_counted=*/false) == 50);
  given.history.update({});
  CHECK(given.choose(60, false) == 7);
  CHECK(given.choose(90) == 7);
  given.history.update(at::ones({}));  // undone
  CHECK(given.step(1) == 7);
  CHECK(given.step(1) == 7);
  CHECK(given.step(1) == 7);
  CHECK(given.step(1) == 1);
}

TEST_CASE("a magnitude that is not finite is used as it is, and not kept") {
  History given;
  given.step(2);
  CHECK(std::isinf(given.step(std::numeric_limits<double>::infinity())));
  CHECK(std::isnan(given.step(std::numeric_limits<double>::quiet_NaN())));
  CHECK(given.step(3) == 2);
  CHECK(given.step(1) == 3);
}

TEST_CASE("layers count the magnitudes of training, not of evaluation") {
  std::vector<bool> counted;
  const auto operations =
      fp8::make_linear(Scaling::tensorwise, fp8::product,
                       [&](const at::Tensor&, fp8::Operand, const at::Tensor& current, bool is_counted) {
                         counted.push_back(is_counted);
                         return current;
                       });
  const Case given;
  given.results(*operations);
  CHECK(counted == std::vector{true, true, true});  // input, weight and gradient
  counted.clear();
  const at::NoGradGuard evaluation;
  operations->linear(given.x, {given.w, given.b, given.w});
  CHECK(counted == std::vector{false, false});
}

TEST_CASE("fp8 resumes bit-exactly after any step, with and without a history") {
  for (const auto& plain : {recipe_of("tensorwise"), recipe_of("rowwise"), recipe_of("tensorwise", 3)}) {
    Recipe recipe = plain;
    recipe.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 1 << 24, .growth_interval = 3}};
    recipe.train.on_nonfinite = OnNonfinite::skip;
    recipe.train.gradient_accumulation_steps = 2;
    const Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
    const PartialRun uninterrupted = train_part(plan);
    for (const int64_t k : {1, 2, 3, 4, 5}) {
      const PartialRun resumed = train_in_two(plan, plan, k);
      CHECK(resumed.losses == uninterrupted.losses);
      CHECK(first_difference(resumed.state, uninterrupted.state) == "");
    }
  }
}

TEST_CASE("ranks agree on the history, with weights replicated and sharded") {
  Recipe recipe = recipe_of("tensorwise", 2);
  recipe.data.batch_size = 4;
  recipe.parallel.check_replicas_every = 1;
  const Trained replicated = train_as(2, recipe);
  for (const auto strategy : {ShardingStrategy::zero1, ShardingStrategy::zero3}) {
    recipe.parallel.sharding_strategy = strategy;
    if (strategy == ShardingStrategy::zero3) recipe.parallel.check_replicas_every = 0;
    const Trained sharded = train_as(2, recipe);
    for (size_t i = 0; i < sharded.losses.size(); ++i)
      CHECK(sharded.losses[i] == Approx(replicated.losses[i]).epsilon(1e-3));
    recipe.optimizations.fp8.options.amax_history = 0;
    CHECK(train_as(2, recipe).losses != sharded.losses);  // the history was used
    recipe.optimizations.fp8.options.amax_history = 2;
  }
}

}  // namespace fp8_tests
