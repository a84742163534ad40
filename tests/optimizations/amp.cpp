#include "device/tensor.h"
#include "optimizations/amp/amp.h"
#include "support/autograd.h"
#include "support/catch.h"
#include "support/parameters.h"
#include "train/plan.h"

namespace amp_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

std::unique_ptr<Precision> precision(const amp::Config& config) {
  Plan plan(Machine{}, at::kCPU, SgdConfig{});
  amp::apply(plan, config);
  return plan.precision.build({.plan = plan, .device = at::kCPU, .run_dir = {}});
}

}  // namespace

TEST_CASE("autocast is active only while its guard lives") {
  const auto part = precision({.dtype = amp::Type::bfloat16});
  const at::Tensor a = at::randn({4, 4}), b = at::randn({4, 4});
  {
    const auto guard = part->autocast();
    CHECK(at::mm(a, b).scalar_type() == at::kBFloat16);
    {
      const AutocastGuard nothing(at::kCPU, std::nullopt);
      CHECK(at::mm(a, b).scalar_type() == at::kBFloat16);
    }
  }
  CHECK(at::mm(a, b).scalar_type() == at::kFloat);
}

TEST_CASE("the gradient scaler scales, detects overflow, backs off and grows again") {
  auto store = some_parameters();
  const auto part = precision({.dtype = amp::Type::float16, .init_scale = 8, .growth_interval = 2});
  const auto weight = store.parameters()[0].second;
  const auto step = [&](double factor) {
    for (const auto& [name, parameter] : store.parameters()) parameter.mutable_grad().reset();
    part->backward((weight * factor).sum());
    const at::Tensor overflow = part->unscale(store.finish_gradients());
    part->update(overflow, {});
    return overflow.item<float>();
  };
  CHECK(step(3.0) == 0);
  CHECK(weight.grad().equal(at::full_like(weight, 3.0)));  // unscaled
  CHECK(part->loss_scale().item<float>() == 8);
  CHECK(step(std::numeric_limits<double>::infinity()) == 1);
  CHECK(part->loss_scale().item<float>() == 8);  // the scale that this step used
  CHECK(step(1.0) == 0);
  CHECK(part->loss_scale().item<float>() == 4);  // halved
  CHECK(step(1.0) == 0);
  CHECK(step(1.0) == 0);
  CHECK(part->loss_scale().item<float>() == 8);  // doubled after two good steps
}

TEST_CASE("16-bit convolutions computed in float32, and their gradients, agree with libtorch's") {
  at::manual_seed(6);
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const auto& shape : {Conv2d::Shape{.in = 8, .out = 12, .kernel = 3, .stride = 2, .padding = 1},
                              {.in = 5, .out = 7, .kernel = 1},
                              {.in = 3, .out = 4, .kernel = 7, .stride = 2, .padding = 3},
                              {.in = 6, .out = 6, .kernel = 7, .padding = 3, .groups = 6}}) {
      const at::Tensor x = at::randn({2, shape.in, 11, 9}).requires_grad_(),
                       w = at::randn({shape.out, shape.in / shape.groups, shape.kernel, shape.kernel}).requires_grad_();
      const auto with = [&](const auto& convolve) {
        const AutocastGuard autocast(at::kCPU, type);
        const at::Tensor y = convolve();
        CHECK(y.scalar_type() == type);
        const auto gradients = torch::autograd::grad({y}, {x, w}, {at::ones_like(y)});
        return std::vector<at::Tensor>{y, gradients[0], gradients[1]};
      };
      const auto kernel = amp::make_float32_convolutions(std::make_unique<PlainConvolutionOperations>());
      const auto ours = with([&] { return kernel->forward(shape, x, w); }),
                 theirs = with([&] { return at::conv2d(x, w, {}, shape.stride, shape.padding, 1, shape.groups); });
      for (size_t i = 0; i < ours.size(); ++i) {
        CHECK(ours[i].scalar_type() == theirs[i].scalar_type());
        const at::Tensor wanted = theirs[i].to(at::kFloat);
        CHECK((ours[i].to(at::kFloat) - wanted).norm().item<double>() <
              1e-2 * wanted.norm().item<double>());  // several roundings to bfloat16
      }
    }
}

TEST_CASE("convolutions compute in float32 only under autocast") {
  const auto kernel = amp::make_float32_convolutions(std::make_unique<PlainConvolutionOperations>());
  const Conv2d::Shape shape{.in = 8, .out = 12, .kernel = 3};
  CHECK_FALSE(kernel->supports(shape, at::ones({1, 8, 4, 4})));
  const AutocastGuard autocast(at::kCPU, at::kBFloat16);
  CHECK(kernel->supports(shape, at::ones({1, 8, 4, 4})));
}

}  // namespace amp_tests
