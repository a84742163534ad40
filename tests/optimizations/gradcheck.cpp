// debug.gradcheck on the real kernels: no alarm for any switch of the catalogue in any type, and a term that is missing
// from a kernel is found.
#include "debugging/gradcheck/gradcheck.h"
#include "device/tensor.h"
#include "optimizations/amp/amp.h"
#include "optimizations/fp8/linear.h"
#include "optimizations/fused_kernels/fused_operations.h"
#include "support/catch.h"
#include "support/trained_ranks.h"
#include "support/turned_on.h"
#include "train/memory_forecast.h"

#include <fmt/ranges.h>

#include <set>

namespace gradcheck_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

Recipe checked_recipe(StemKind stem) {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model = {.name = ModelKind::resnet18, .stem = stem};
  recipe.data.dataset = DatasetKind::fake_cifar10;
  recipe.data.size = 64;
  recipe.data.batch_size = 8;
  recipe.data.transforms = {ResizeConfig{.exact = {16, 16}}, NormalizeConfig{}};
  recipe.train.label_smoothing = 0.1;
  recipe.train.max_steps = 1;
  recipe.debug.gradcheck = true;
  return recipe;
}

/// Builds the trainer, which checks the plan's operations, and returns the rows of the report.
Json checked(const Recipe& recipe) {
  const Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  Rows rows;
  Trainer(plan, {}, rows, never_stopped());
  REQUIRE(plan.reports.size() == 1);
  return plan.reports[0].second();
}

std::set<std::string> operations(const Json& rows) {
  std::set<std::string> names;
  for (const auto& row : rows) names.insert(row.at("operation").get<std::string>());
  return names;
}

/// Batch-norm's gradient without the term that comes from the variance.
class WithoutVariance : public kernels::NormKernels {
 public:
  using Tensor = at::Tensor;
  kernels::Statistics statistics(const Tensor& x, const kernels::NormParameters& norm) const override {
    return right_.statistics(x, norm);
  }
  Tensor apply(const Tensor& x, const Tensor& scale, const Tensor& shift, const Tensor& residual,
               bool relu) const override {
    return right_.apply(x, scale, shift, residual, relu);
  }
  kernels::Coefficients coefficients(const Tensor& gradient, const Tensor& x,
                                     const kernels::Statistics& by) const override {
    return without(right_.coefficients(gradient, x, by), by, x);
  }
  kernels::Coefficients coefficients_through_relu(const Tensor& gradient, const Tensor& x,
                                                  const kernels::Statistics& by) const override {
    return without(right_.coefficients_through_relu(gradient, x, by), by, x);
  }
  kernels::Coefficients coefficients_through_output(const Tensor& gradient, const Tensor& y, const Tensor& x,
                                                    const kernels::Statistics& by, Tensor& g) const override {
    return without(right_.coefficients_through_output(gradient, y, x, by, g), by, x);
  }
  Tensor input_gradient(const Tensor& g, const Tensor& x, const kernels::Statistics& by,
                        const kernels::Coefficients& coefficients) const override {
    return right_.input_gradient(g, x, by, coefficients);
  }
  Tensor input_gradient_through_relu(const Tensor& gradient, const Tensor& x, const kernels::Statistics& by,
                                     const kernels::Coefficients& coefficients) const override {
    return right_.input_gradient_through_relu(gradient, x, by, coefficients);
  }

 private:
  static kernels::Coefficients without(kernels::Coefficients found, const kernels::Statistics& by, const Tensor& x) {
    const auto count = static_cast<double>(x.numel() / x.size(1));
    found.of_x = at::zeros_like(found.of_x);
    found.rest = by.scale * found.of_bias / -count;
    return found;
  }
  const kernels::NormKernels& right_ = kernels::cpu_norm_kernels();
};

std::string call_text(const std::string& operation, at::IntArrayRef sizes, at::ScalarType type, bool is_nhwc) {
  return fmt::format("{} [{}] {}{}", operation, fmt::join(sizes, ", "), type_name(type), is_nhwc ? " NHWC" : "");
}

/// Collects the calls of a training, as operation_cases() describes them.
class Calls : public BatchNormOperations {
 public:
  using Collected = std::set<std::string>;
  Calls(std::unique_ptr<BatchNormOperations> inner, Collected& collected)
      : inner_(std::move(inner)), collected_(collected) {}

  at::Tensor batch_norm(const at::Tensor& input, const BatchNorm2d& norm,
                        const ForwardContext& context) const override {
    collect("batch_norm", input, context);
    return inner_->batch_norm(input, norm, context);
  }
  at::Tensor batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                             const ForwardContext& context) const override {
    collect("batch_norm_relu", input, context);
    return inner_->batch_norm_relu(input, norm, context);
  }
  at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                                 const ForwardContext& context) const override {
    collect("batch_norm_add_relu", input, context);
    collect("batch_norm_add_relu", residual, context);
    return inner_->batch_norm_add_relu(input, norm, residual, context);
  }
  at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override {
    collect("stem_pool", input, context);
    return inner_->stem_pool(input, norm, context);
  }

 private:
  void collect(const char* operation, const at::Tensor& input, const ForwardContext& context) const {
    if (context.training)
      collected_.insert(call_text(operation, input.sizes(), input.scalar_type(),
                                  input.is_contiguous(at::MemoryFormat::ChannelsLast)));
  }

  std::unique_ptr<BatchNormOperations> inner_;
  Collected& collected_;
};

}  // namespace

TEST_CASE("a training step has the shapes and types and the layout that are checked") {
  for (const bool in_16_bits : {false, true}) {
    Recipe recipe = checked_recipe(StemKind::imagenet);
    recipe.debug.gradcheck = false;
    recipe.data.transforms[0] = ResizeConfig{.exact = {64, 48}};
    recipe.optimizations.fused_kernels = true;
    recipe.optimizations.amp.on = in_16_bits;
    Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
    const gradcheck::CheckedSlots slots(plan);
    Calls::Collected called, assumed;
    plan.operations.batch_norm.wrap("test", "", [&](const BuildContext&, std::unique_ptr<BatchNormOperations> inner) {
      return std::make_unique<Calls>(std::move(inner), called);
    });
    Rows rows;
    Trainer trainer(plan, {}, rows, never_stopped());
    trainer.run();
    const auto model = plan.build_model();
    for (const auto& each : operation_cases(slots, {plan, plan.device, {}, nullptr, model.get()}))
      if (each.inputs.size() >= 3 && each.operation != "head")
        assumed.insert(call_text(each.operation, each.inputs[0].sizes, plan.tensor_format.compute_type, true));
    CHECK(assumed.size() == 12);
    CHECK(called == assumed);
  }
}

TEST_CASE("no switch of the catalogue raises an alarm, and none that has a backward of its own is missed") {
  std::set<std::string> with_own;
  for (const CatalogueEntry& entry : catalogue()) {
    INFO(entry.info.name);
    Recipe recipe = turned_on(checked_recipe(StemKind::cifar), entry);
    if (std::string_view(entry.info.name) == "amp")
      recipe.optimizations.fused_optimizer = true;  // keeps 16-bit copies of weights
    for (const auto& row : checked(recipe)) {
      INFO(json_text(row));
      CHECK(row.at("passed") == true);
      with_own.insert(std::string(entry.info.name));
    }
  }
  CHECK(with_own == std::set<std::string>{"amp", "fused_kernels", "winograd"});
}

TEST_CASE("linear layers with 8-bit operands pass, alone and before a fused GELU, and a wrong transpose does not") {
  Recipe recipe = checked_recipe(StemKind::cifar);
  recipe.model = {.name = ModelKind::vit, .patch = 4, .layers = 1, .heads = 2, .width = 32};
  for (const auto scaling : {fp8::Scaling::tensorwise, fp8::Scaling::rowwise})
    for (const bool all : {false, true}) {
      recipe.optimizations.fp8 = {true, {.recipe = scaling}};
      recipe.optimizations.fused_kernels = recipe.optimizations.amp.on = all;
      int64_t linears = 0;
      for (const auto& row : checked(recipe)) {
        INFO(json_text(row));
        CHECK(row.at("passed") == true);
        if (row.at("operation") == "linear") linears += row.at("calls").get<int64_t>();
      }
      CHECK(linears == 4);  // the head has ten classes
    }
  recipe.debug.gradcheck = false;
  Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  plan.operations.linear.wrap("test", "", [](const BuildContext&, std::unique_ptr<LinearOperations>) {
    return fp8::make_linear(
        fp8::Scaling::tensorwise,
        [](const fp8::ScaledMatrix& a, const fp8::ScaledMatrix& b, at::ScalarType out, fp8::Sums sums) {
          return fp8::product(a, {b.values.to(at::kFloat).flip(1).to(b.values.scalar_type()), b.scale}, out, sums);
        },
        [](const at::Tensor&, fp8::Operand, const at::Tensor& current, bool) { return current; });
  });
  gradcheck::add_gradcheck(plan);
  Rows rows;
  CHECK_THROWS_WITH(Trainer(plan, {}, rows, never_stopped()), ContainsSubstring("linear"));
}

TEST_CASE("every kernel of our own passes in every type") {
  for (const StemKind stem : {StemKind::cifar, StemKind::imagenet})
    for (const bool channels_last : {false, true})
      for (const auto type : std::vector<std::optional<amp::Type>>{{}, amp::Type::bfloat16, amp::Type::float16}) {
        Recipe recipe = checked_recipe(stem);
        if (stem == StemKind::imagenet) recipe.data.transforms[0] = ResizeConfig{.exact = {33, 47}};
        auto& o = recipe.optimizations;
        o.fused_kernels = o.winograd.on = o.fused_optimizer = true;
        o.channels_last = channels_last;
        if (type) o.amp = {true, {.dtype = *type}};
        const Json rows = checked(recipe);
        for (const auto& row : rows) {
          INFO(json_text(row));
          CHECK(row.at("passed") == true);
        }
        const auto names = operations(rows);
        for (const char* name : {"convolution", "batch_norm", "batch_norm_relu", "batch_norm_add_relu", "head", "loss"})
          CHECK(names.contains(name));
        CHECK(names.contains("stem_pool") == (stem == StemKind::imagenet));
        CHECK(names.contains("weight_copy") == type.has_value());
      }
}

TEST_CASE("the kernels of every vector width pass, and convolutions in float32 on any CPU") {
  const auto norms = kernels::all_cpu_norm_kernels();
  const auto pools = kernels::all_cpu_pool_kernels();
  const auto heads = kernels::all_cpu_head_kernels();
  for (size_t width = 0; width < norms.size(); ++width)
    for (const auto type : {amp::Type::bfloat16, amp::Type::float16}) {
      Recipe recipe = checked_recipe(StemKind::imagenet);
      recipe.debug.gradcheck = false;
      recipe.optimizations.amp = {true, {.dtype = type}};
      Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
      const fused_kernels::BlockKernels all{
          .norm = *norms.at(width), .pool = *pools.at(width), .head = *heads.at(width)};
      plan.operations.batch_norm.fill("test", "",
                                      [&](const BuildContext&) { return fused_kernels::make_fused_batch_norm(all); });
      plan.operations.head.fill("test", "", [&](const BuildContext&) { return fused_kernels::make_fused_head(all); });
      plan.operations.convolution.wrap("test", "",
                                       [](const BuildContext&, std::unique_ptr<ConvolutionOperations> inner) {
                                         return amp::make_float32_convolutions(std::move(inner));
                                       });
      const auto model = plan.build_model();
      const auto communicator = make_single_communicator();
      const auto report =
          check_operations(gradcheck::CheckedSlots(plan), {plan, plan.device, {}, communicator.get(), model.get()});
      CHECK(report.operations.size() == 24);
      INFO(json_text(to_json(report), 2));
      CHECK_FALSE(failure_of(report));
    }
}

TEST_CASE("a term that is missing from a kernel is found in every type") {
  const WithoutVariance wrong;
  for (const bool in_16_bits : {false, true}) {
    Recipe recipe = checked_recipe(StemKind::cifar);
    recipe.optimizations.amp.on = in_16_bits;
    recipe.debug.gradcheck = false;
    Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
    plan.operations.batch_norm.fill("test", "wrong", [&](const BuildContext&) {
      return fused_kernels::make_fused_batch_norm(
          {.norm = wrong, .pool = kernels::cpu_pool_kernels(), .head = kernels::cpu_head_kernels()});
    });
    gradcheck::add_gradcheck(plan);
    Rows rows;
    CHECK_THROWS_WITH(
        Trainer(plan, {}, rows, never_stopped()),
        ContainsSubstring("batch_norm_relu of bn1") && ContainsSubstring("the gradient of input differs from float64"));
    for (const auto& row : plan.reports[0].second())
      CHECK(row.at("passed") == (row.at("operation").get<std::string>().rfind("batch_norm", 0) != 0));
  }
}

TEST_CASE("batch-norm over several ranks is checked over all of them") {
  Recipe recipe = checked_recipe(StemKind::cifar);
  recipe.debug.gradcheck = false;
  std::array<gradcheck::Report, 2> right, of_one_rank;
  as_ranks(2, [&](Job&, Communicator& communicator) {
    const auto report = [&](bool reduces) {
      Recipe own = recipe;
      own.parallel.sync_batch_norm = reduces;
      own.optimizations.fused_kernels = !reduces;
      Plan plan = make_plan(own, Machine{.cpu = "test", .cores = 1}, communicator.position());
      plan.parallel.sync_batch_norm = true;
      const auto model = plan.build_model();
      return check_operations(gradcheck::CheckedSlots(plan), {.plan = plan,
                                                              .device = plan.device,
                                                              .communicator = &communicator,
                                                              .model = model.get(),
                                                              .replicas = &communicator});
    };
    const auto rank = static_cast<size_t>(communicator.rank());
    right[rank] = report(true);
    of_one_rank[rank] = report(false);
  });
  for (const auto& report : right) {
    CHECK(operations(to_json(report)) == std::set<std::string>{"batch_norm", "batch_norm_add_relu", "batch_norm_relu"});
    CHECK_FALSE(failure_of(report));
  }
  for (const auto& report : of_one_rank)
    for (const auto& row : to_json(report))
      CHECK(row.at("passed") == (row.at("operation") == "head" || row.at("operation") == "loss"));
}

TEST_CASE("each stage of a pipeline checks the whole model, and its forecast, which has no values, checks nothing") {
  Recipe recipe = checked_recipe(StemKind::cifar);
  recipe.optimizations.fused_kernels = true;
  std::set<std::string> wanted = operations(checked(recipe));
  CHECK(wanted.contains("batch_norm"));
  recipe.parallel.pipeline = {.stages = 2, .micro_batches = 2};
  for (const int64_t rank : {0, 1}) {
    const Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 1},
                                {.rank = rank, .ranks = 2, .local_rank = rank, .local_ranks = 2});
    CHECK(forecast_memory(plan).breakdown.total() > 0);
    CHECK(plan.reports.at(0).second().is_null());
  }
  std::array<Json, 2> rows;
  as_ranks(2, [&](Job&, Communicator& communicator) {
    const Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 1}, communicator.position());
    Rows listener;
    const Trainer built(plan, {}, listener, never_stopped(), {},
                        std::shared_ptr<Communicator>(&communicator, [](Communicator*) {}));
    rows[static_cast<size_t>(communicator.rank())] = plan.reports.at(0).second();
  });
  CHECK(operations(rows[1]) == wanted);
  CHECK(wanted.erase("loss") == 1);  // the last stage computes it
  CHECK(operations(rows[0]) == wanted);
  for (const Json& of_rank : rows)
    for (const auto& row : of_rank) CHECK(row.at("passed") == true);
}

TEST_CASE("a checked run computes the same losses and weights") {
  Recipe recipe = checked_recipe(StemKind::cifar);
  recipe.train.max_steps = 2;
  auto& o = recipe.optimizations;
  o.fused_kernels = o.winograd.on = o.fused_optimizer = o.amp.on = true;
  const Trained with = train_as(1, recipe);
  recipe.debug.gradcheck = false;
  const Trained without = train_as(1, recipe);
  CHECK(with.losses == without.losses);
  REQUIRE(with.weights.size() == without.weights.size());
  for (size_t i = 0; i < with.weights.size(); ++i) CHECK(with.weights[i].second.equal(without.weights[i].second));
}

}  // namespace gradcheck_tests
