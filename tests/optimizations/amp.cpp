#include "optimizations/amp/amp.h"
#include "support/catch.h"
#include "support/parameters.h"
#include "train/plan.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

std::unique_ptr<Precision> precision(const amp::Config& config) {
  Plan plan(Machine{}, at::kCPU, SgdConfig{});
  amp::apply(plan, config);
  return plan.precision.build({.plan = plan, .device = at::kCPU, .run_dir = {}});
}

}  // namespace

TEST_CASE("autocast lasts for its guard and no longer") {
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

TEST_CASE("the scaler scales, notices overflow, backs off and grows again") {
  auto store = some_parameters();
  const auto part = precision({.dtype = amp::Type::float16, .init_scale = 8, .growth_interval = 2});
  const auto weight = store.parameters()[0].second;
  const auto step = [&](double factor) {
    for (const auto& [name, parameter] : store.parameters()) parameter.mutable_grad().reset();
    part->backward((weight * factor).sum());
    const at::Tensor overflow = part->unscale(store);
    part->update(overflow, {});
    return overflow.item<float>();
  };
  CHECK(step(3.0) == 0);
  CHECK(weight.grad().equal(at::full_like(weight, 3.0)));                 // back at its own scale
  CHECK(part->loss_scale().item<float>() == 8);
  CHECK(step(std::numeric_limits<double>::infinity()) == 1);
  CHECK(part->loss_scale().item<float>() == 8);                           // the one this step used
  CHECK(step(1.0) == 0);
  CHECK(part->loss_scale().item<float>() == 4);                           // halved
  CHECK(step(1.0) == 0);
  CHECK(step(1.0) == 0);
  CHECK(part->loss_scale().item<float>() == 8);                           // doubled after two good steps
}
