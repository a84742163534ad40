// The plain form of a step's gradients, compared with torch's definitions.
#include "support/catch.h"
#include "support/parameters.h"

using namespace trainopt;
using namespace trainopt::test;

TEST_CASE("gradients are unscaled, checked, measured, clipped and cleared in place") {
  auto store = some_parameters();
  set_gradients(store, 1);
  store.parameters()[1].second.mutable_grad().reset();  // backward may not reach all parameters
  const at::Tensor before = store.gradients()[0].clone();
  Gradients& gradients = store.finish_gradients();
  CHECK_FALSE(gradients.tensors()[1].defined());
  at::Tensor not_finite = at::zeros({});
  gradients.check_finite(not_finite);
  CHECK(not_finite.item<float>() == 0);
  gradients.unscale(at::full({}, 4.0f), not_finite);
  CHECK(store.gradients()[0].equal(before * 4));
  CHECK(gradients.value(gradients.tensors()[0]).equal(before * 4));

  const auto length = [&] {
    return std::sqrt(store.gradients()[0].square().sum().item<double>() +
                     store.gradients()[2].square().sum().item<double>());
  };
  const double norm = length();
  CHECK_FALSE(clip(gradients, std::nullopt).defined());
  CHECK(clip(gradients, 2 * norm).item<double>() == Approx(norm));
  CHECK(length() == Approx(norm));
  CHECK(clip(gradients, norm / 3).item<double>() == Approx(norm));  // the norm before clipping
  CHECK(length() == Approx(norm / 3));
  CHECK_FALSE(clip(gradients, std::nullopt, 0.25 * norm / 3).defined());
  CHECK(store.gradients()[0].abs().max().item<double>() == Approx(0.25 * norm / 3));

  gradients.tensors()[2].view(-1)[0] = std::numeric_limits<float>::infinity();
  gradients.check_finite(not_finite);
  CHECK(not_finite.item<float>() == 1);
  gradients.clear();
  CHECK(gradients.tensors().empty());  // holds no memory between steps
  CHECK_FALSE(store.gradients()[0].any().item<bool>());
}

TEST_CASE("without a communicator agree() leaves the flag unchanged") {
  auto store = some_parameters();
  at::Tensor flag = at::full({}, 1.0f);
  store.finish_gradients().agree(flag);
  CHECK(flag.item<float>() == 1);
}
