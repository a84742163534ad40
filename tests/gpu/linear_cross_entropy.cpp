// Tests the loss of a language model's last layer on a GPU: the checks that CPUs pass.
#include "gpu.h"
#include "device/device.h"
#include "kernels/linear_cross_entropy_checks.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

const LinearCrossEntropyKernels& tokens_on_gpu() {
  REQUIRE(cuda_linear_cross_entropy_kernels() != nullptr);
  return *cuda_linear_cross_entropy_kernels();
}

}  // namespace

TEST_CASE("the token loss matches the reference on a GPU") { check_against_reference(tokens_on_gpu(), kGpu); }

TEST_CASE("the gradients of the token loss match float64 on a GPU") {
  check_token_gradients(tokens_on_gpu(), kGpu);
  check_converted_tokens(tokens_on_gpu(), kGpu);
  check_strided_tokens(tokens_on_gpu(), kGpu);
}

TEST_CASE("a token loss without a row that counts is NaN on a GPU, its gradients are 0") {
  check_only_padding(tokens_on_gpu(), kGpu);
}

TEST_CASE("extreme logits give the same token loss as libtorch on a GPU") {
  check_extreme_tokens(tokens_on_gpu(), kGpu);
}

TEST_CASE("on a GPU a token that is no class makes the loss and its own row NaN, and the result is reproducible") {
  TokenBatch batch = token_batch(300, 32, 50257, at::kBFloat16, kGpu);
  const WantedGradients both{.of_hidden = true, .of_weight = true};
  const LinearCrossEntropy once = tokens_on_gpu().run(batch.hidden, batch.weight, batch.target, both),
                           again = tokens_on_gpu().run(batch.hidden, batch.weight, batch.target, both);
  CHECK(once.loss.equal(again.loss));
  CHECK(once.of_hidden.equal(again.of_hidden));
  batch.target[3] = 50257;  // within the padded row
  const LinearCrossEntropy wrong = tokens_on_gpu().run(batch.hidden, batch.weight, batch.target, both);
  CHECK(wrong.loss.isnan().item<bool>());
  CHECK(wrong.of_hidden.isnan().any(1).sum().item<int64_t>() == 1);
}
