#include "device/differentiable.h"
#include "device/tensor.h"
#include "support/autograd.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

/// The sum and the product of two numbers, and which gradients their backward got.
std::vector<at::Tensor> sum_and_product(const at::Tensor& a, const at::Tensor& b, std::vector<bool>& arrived) {
  return differentiable_outputs(
      {a, b},
      [&](std::vector<at::Tensor>& saved) {
        saved = {a, b};
        return std::vector<at::Tensor>{a + b, a * b};
      },
      [&arrived](const BackwardCall& call) {
        arrived = {call.gradients[0].defined(), call.gradients[1].defined()};
        std::vector<at::Tensor> gradients;
        for (const at::Tensor& other : {call.saved[1], call.saved[0]}) {
          at::Tensor gradient = at::zeros({});
          if (arrived[0]) gradient = gradient + call.gradients[0];
          if (arrived[1]) gradient = gradient + call.gradients[1] * other;
          gradients.push_back(gradient);
        }
        return gradients;
      });
}

}  // namespace

TEST_CASE("an operation with several outputs gets the gradients that arrive") {
  const at::Tensor a = at::full({}, 3).to(at::kFloat).requires_grad_(),
                   b = at::full({}, 5).to(at::kFloat).requires_grad_();
  std::vector<bool> arrived;
  const auto outputs = sum_and_product(a, b, arrived);
  REQUIRE(outputs.size() == 2);
  CHECK(outputs[0].item<float>() == 8);
  CHECK(outputs[1].item<float>() == 15);
  CHECK(has_own_backward(outputs[0]));
  CHECK(has_own_backward(outputs[1] * 2));
  const auto gradients_of = [&](const at::Tensor& loss) {
    const auto gradients = torch::autograd::grad({loss}, {a, b}, {}, /*retain_graph=*/true);
    return std::pair(gradients[0].item<float>(), gradients[1].item<float>());
  };
  CHECK(gradients_of(outputs[0] + 10 * outputs[1]) == std::pair(51.0f, 31.0f));
  CHECK(arrived == std::vector<bool>{true, true});
  CHECK(gradients_of(outputs[0]) == std::pair(1.0f, 1.0f));
  CHECK(arrived == std::vector<bool>{true, false});
  CHECK(gradients_of(outputs[1]) == std::pair(5.0f, 3.0f));
  CHECK(arrived == std::vector<bool>{false, true});
}
