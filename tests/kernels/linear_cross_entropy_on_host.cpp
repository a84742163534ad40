// Tests the loss of a language model's last layer on GPU kernels that are compiled for the host and run thread by
// thread.
#include "support/cuda_on_host.h"

#include "kernels/head/device.cuh"
#include "kernels/linear_cross_entropy/launched.h"
#include "kernels/linear_cross_entropy_checks.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

const LinearCrossEntropyKernels& tokens_on_host() {
  static const device::DeviceHeadLaunches launches;
  static const LaunchedLinearCrossEntropy kernels(launches, at::kCPU);
  return kernels;
}

}  // namespace

TEST_CASE("on a GPU, the token loss matches the reference in every type and size") {
  check_against_reference(tokens_on_host(), at::kCPU);
}

TEST_CASE("on a GPU, the gradients of the token loss match float64") {
  check_token_gradients(tokens_on_host(), at::kCPU);
  check_converted_tokens(tokens_on_host(), at::kCPU);
  check_strided_tokens(tokens_on_host(), at::kCPU);
}

TEST_CASE("on a GPU, a token loss without a row that counts is NaN, its gradients are 0") {
  check_only_padding(tokens_on_host(), at::kCPU);
}

TEST_CASE("on a GPU, extreme logits give the same token loss as libtorch") {
  check_extreme_tokens(tokens_on_host(), at::kCPU);
}

TEST_CASE("on a GPU, a token that is no class makes the loss and its own row NaN") {
  at::manual_seed(46);
  for (const int64_t wrong : {-1, 10, -101}) {  // 10 is within the padded row
    TokenBatch batch = token_batch(4, 3, 10, at::kFloat, at::kCPU);
    batch.target[2] = wrong;
    const LinearCrossEntropy got =
        tokens_on_host().run(batch.hidden, batch.weight, batch.target, {.of_hidden = true, .of_weight = false});
    CHECK(got.loss.isnan().item<bool>());
    CHECK(got.of_hidden.isnan().all(1).equal(at::tensor({0, 0, 1, 0}).to(at::kBool)));
    CHECK(got.of_hidden.isnan().any(1).equal(at::tensor({0, 0, 1, 0}).to(at::kBool)));
  }
}

TEST_CASE("the token loss does not depend on the order of threads") {
  at::manual_seed(47);
  const TokenBatch batch = token_batch(37, 4, 1001, at::kBFloat16, at::kCPU);
  const auto all = [&] {
    const LinearCrossEntropy result =
        tokens_on_host().run(batch.hidden, batch.weight, batch.target, {.of_hidden = true, .of_weight = true});
    return std::vector<at::Tensor>{result.loss, result.share, result.of_hidden, result.of_weight};
  };
  const auto forwards = all();
  grid_on_host.backwards = true;
  const auto backwards = all();
  grid_on_host.backwards = false;
  for (size_t i = 0; i < forwards.size(); ++i) CHECK(forwards[i].equal(backwards[i]));
}
