#include "model/task.h"
#include "device/tensor.h"
#include "support/catch.h"

#include <cmath>

using namespace trainopt;

TEST_CASE("cross entropy is the mean over samples, smoothed in training only") {
  Model model = make_model({.name = ModelKind::mlp, .num_classes = 3, .hidden = {4}}, {1, 2, 2}, at::kCPU, 5);
  const at::Tensor input = at::randn({6, 1, 2, 2});
  const at::Tensor target = at::tensor({0, 1, 2, 2, 1, 0}, at::kLong);
  const at::Tensor log_probabilities = model.forward(input, {}).detach().to(at::kDouble).log_softmax(1);
  double plain = 0, smoothed = 0;
  for (int64_t i = 0; i < 6; ++i) {
    const double right = -log_probabilities[i][target[i].item<int64_t>()].item<double>();
    plain += right / 6;
    smoothed += (0.7 * right - 0.3 / 3 * log_probabilities[i].sum().item<double>()) / 6;
  }
  const ClassificationTask task(0.3);
  const auto training = task.loss(model, input, target, {.training = true});
  CHECK(training.loss.item<double>() == Approx(smoothed).epsilon(1e-6));
  CHECK(training.loss.requires_grad());
  CHECK(training.outputs.sizes() == at::IntArrayRef({6, 3}));
  CHECK(task.evaluation_loss(model, input, target, {}).loss.item<double>() == Approx(plain).epsilon(1e-6));
}

TEST_CASE("top-1 and top-5 count samples") {
  const ClassificationTask task(0);
  const at::Tensor outputs = at::tensor({7., 6., 5., 4., 3., 2., 1.}, at::kFloat).repeat({5, 1});
  const at::Tensor counts = task.correct(outputs, at::tensor({0, 1, 4, 5, 6}, at::kLong));
  CHECK(counts.scalar_type() == at::kLong);
  CHECK(at::equal(counts, at::tensor({1, 3}, at::kLong)));
  // With fewer than five classes every sample counts in top-5.
  const at::Tensor three = at::tensor({1., 2., 3.}, at::kFloat).repeat({2, 1});
  CHECK(at::equal(task.correct(three, at::tensor({2, 0}, at::kLong)), at::tensor({1, 2}, at::kLong)));
}
