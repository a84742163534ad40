// Tests the CPU kernels of attention against their reference, and against libtorch's attention and its gradients.
#include "kernels/attention/attention.h"
#include "kernels/layer_norm_checks.h"

#include <ATen/Parallel.h>
#include <ATen/ops/scaled_dot_product_attention.h>

using namespace trainopt;
using namespace trainopt::test;

namespace {

struct Shape {
  int64_t samples, heads, tokens, width;
};
/// Panels, blocks of queries and vectors that are full and not full; several blocks; more heads than threads.
const std::vector<Shape> kShapes = {{1, 1, 1, 1},   {2, 3, 5, 7},    {1, 2, 16, 16},  {2, 1, 60, 64}, {1, 2, 61, 24},
                                    {1, 1, 77, 80}, {1, 2, 197, 64}, {1, 1, 300, 40}, {3, 2, 130, 8}};

/// As a linear layer computes them: parts of one tensor, whose heads are not contiguous in memory.
struct Inputs {
  Inputs(const Shape& shape, at::ScalarType type, double scale = 1) {
    const auto parts = (at::randn({shape.samples, shape.tokens, 3 * shape.heads * shape.width}) * scale)
                           .to(type)
                           .split(shape.heads * shape.width, 2);
    const auto by_head = [&](const at::Tensor& part) {
      return part.unflatten(2, {shape.heads, shape.width}).transpose(1, 2);
    };
    query = by_head(parts[0]), key = by_head(parts[1]), value = by_head(parts[2]);
    gradient = at::randn(query.sizes()).to(type);
  }
  AttentionInputs of(bool causal) const { return {query, key, value, causal}; }
  at::Tensor query, key, value, gradient;
};

/// Largest difference ÷ largest value.
double difference(const at::Tensor& got, const at::Tensor& wanted) {
  const at::Tensor reference = wanted.to(at::kDouble);
  return ((got.to(at::kDouble) - reference).abs().max() / reference.abs().max()).item<double>();
}

/// Of one rounding to the type, and of sums in another order.
double tolerance(at::ScalarType type) { return type == at::kFloat ? 2e-6 : type == at::kHalf ? 6e-4 : 4.5e-3; }

std::vector<at::Tensor> results(const AttentionKernels& kernels, const Inputs& inputs, bool causal) {
  const auto forward = kernels.forward(inputs.of(causal));
  const auto backward = kernels.backward(inputs.gradient, inputs.of(causal), forward.log_sums);
  return {forward.output, forward.log_sums, backward.of_query, backward.of_key, backward.of_value};
}

/// libtorch's attention and its gradients in float64.
std::vector<at::Tensor> exact(const Inputs& inputs, bool causal) {
  const auto leaf = [](const at::Tensor& tensor) { return tensor.to(at::kDouble).detach().requires_grad_(); };
  const at::Tensor query = leaf(inputs.query), key = leaf(inputs.key), value = leaf(inputs.value);
  const at::Tensor output = at::scaled_dot_product_attention(query, key, value, {}, 0, causal);
  output.backward(inputs.gradient.to(at::kDouble));
  return {output.detach(), query.grad(), key.grad(), value.grad()};
}

}  // namespace

TEST_CASE("attention and its gradients match the reference and float64 in every type and size") {
  at::manual_seed(51);
  for (const AttentionKernels* kernels : all_cpu_attention_kernels())
    for (const Shape& shape : kShapes)
      for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf})
        for (const bool causal : {false, true}) {
          CAPTURE(shape.samples, shape.heads, shape.tokens, shape.width, type, causal);
          const Inputs inputs(shape, type);
          const auto got = results(*kernels, inputs, causal),
                     wanted = results(reference_attention_kernels(), inputs, causal), truth = exact(inputs, causal);
          CHECK(got[0].scalar_type() == type);
          CHECK(got[0].transpose(1, 2).is_contiguous());
          CHECK(difference(got[1], wanted[1]) < 2e-6);
          if (shape.tokens == 1) {  // one key: its probability is 1, and scores have no gradient
            CHECK(got[0].equal(inputs.value));
            CHECK(got[4].equal(inputs.gradient));
            CHECK(got[2].abs().max().item<double>() < 1e-2);
            continue;
          }
          for (const size_t i : {0u, 2u, 3u, 4u}) CHECK(difference(got[i], wanted[i]) < 2 * tolerance(type));
          for (const size_t i : {0u, 1u, 2u, 3u})
            CHECK(difference(got[i == 0 ? 0 : i + 1], truth[i]) < (type == at::kFloat ? 4 : 1) * tolerance(type));
        }
}

TEST_CASE("a causal token does not depend on later ones") {
  at::manual_seed(52);
  for (const AttentionKernels* kernels : all_cpu_attention_kernels()) {
    const Inputs inputs({1, 2, 100, 32}, at::kFloat);
    const at::Tensor before = kernels->forward(inputs.of(true)).output.clone();
    inputs.key.narrow(2, 70, 30).fill_(std::numeric_limits<float>::quiet_NaN());
    inputs.value.narrow(2, 70, 30).zero_();
    const at::Tensor after = kernels->forward(inputs.of(true)).output;
    CHECK(after.narrow(2, 0, 70).equal(before.narrow(2, 0, 70)));  // in the same block as later ones
    CHECK(after.narrow(2, 70, 30).isnan().all().item<bool>());
  }
}

TEST_CASE("attention of large scores is libtorch's, and a NaN stays in its row") {
  at::manual_seed(53);
  for (const AttentionKernels* kernels : all_cpu_attention_kernels()) {
    Inputs inputs({1, 1, 70, 16}, at::kFloat, 30);  // one key has all of the weight
    CHECK(difference(kernels->forward(inputs.of(false)).output, exact(inputs, false)[0]) < 1e-4);
    inputs.query.select(2, 65).fill_(std::numeric_limits<float>::quiet_NaN());
    const at::Tensor output = kernels->forward(inputs.of(false)).output;
    CHECK(output.isnan().sum().item<int64_t>() == 16);
    CHECK(output.select(2, 65).isnan().all().item<bool>());
  }
}

TEST_CASE("attention does not depend on the number of threads") {
  at::manual_seed(54);
  const Inputs inputs({2, 3, 90, 24}, at::kBFloat16);
  const int threads = at::get_num_threads();
  at::set_num_threads(4);
  const auto many = results(cpu_attention_kernels(), inputs, true);
  at::set_num_threads(1);
  const auto one = results(cpu_attention_kernels(), inputs, true);
  at::set_num_threads(threads);
  for (size_t i = 0; i < many.size(); ++i) CHECK(many[i].equal(one[i]));
}

TEST_CASE("attention is differentiable, whatever the layout of its inputs and of its gradient") {
  at::manual_seed(55);
  const Inputs inputs({2, 2, 20, 12}, at::kFloat);
  const auto leaf = [](const at::Tensor& tensor) { return tensor.detach().clone().requires_grad_(); };
  const at::Tensor query = leaf(inputs.query), value = leaf(inputs.value);
  const at::Tensor leaf_of_key = leaf(inputs.key),
                   transposed_key = leaf_of_key.transpose(2, 3).contiguous().transpose(2, 3);
  const at::Tensor output = attention({query, transposed_key, value, true}, cpu_attention_kernels());
  output.backward(inputs.gradient.transpose(2, 3).contiguous().transpose(2, 3));
  const auto truth = exact(inputs, true);
  CHECK(difference(output.detach(), truth[0]) < 2e-6);
  CHECK(difference(query.grad(), truth[1]) < 1e-5);
  CHECK(difference(leaf_of_key.grad(), truth[2]) < 1e-5);
  CHECK(difference(value.grad(), truth[3]) < 1e-5);
}

TEST_CASE("meta tensors get the results' shapes") {
  const Inputs real({2, 3, 9, 8}, at::kBFloat16);
  const auto meta = [](const at::Tensor& tensor) { return tensor.to(at::kMeta); };
  const at::Tensor query = meta(real.query), key = meta(real.key), value = meta(real.value);
  const auto result = cpu_attention_kernels().forward({query, key, value, true});
  const auto gradients =
      cpu_attention_kernels().backward(meta(real.gradient), {query, key, value, true}, result.log_sums);
  const auto wanted = results(cpu_attention_kernels(), real, true);
  const std::vector<at::Tensor> got = {result.output, result.log_sums, gradients.of_query, gradients.of_key,
                                       gradients.of_value};
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].sizes() == wanted[i].sizes());
    CHECK(got[i].strides() == wanted[i].strides());
    CHECK(got[i].scalar_type() == wanted[i].scalar_type());
  }
}
