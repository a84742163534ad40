// Tests the loss of a language model's last layer in pieces, on CPUs and, for shapes and sizes, on the meta device.
#include "device/meta_device.h"
#include "device/tensor_memory.h"
#include "kernels/linear_cross_entropy_checks.h"
#include "kernels/meta.h"
#include "train/observe/step_trace.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <map>

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// Work on `threads` threads.
template <class Work>
auto on_threads(int threads, const Work& work) {
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  auto result = work();
  at::set_num_threads(before);
  return result;
}

/// The most bytes that tensors held.
struct Peak : MemoryListener {
  void allocated(const void* address, int64_t bytes, const MemoryLabel&) override {
    held[address] = bytes;
    live += bytes;
    peak = std::max(peak, live);
  }
  void released(const void* address, int64_t) override {
    const auto found = held.find(address);
    if (found == held.end()) return;
    live -= found->second;
    held.erase(found);
  }
  std::map<const void*, int64_t> held;
  int64_t live = 0, peak = 0;
};

}  // namespace

TEST_CASE("the token loss in pieces matches the reference in every type and size") {
  for (const auto* kernels : all_cpu_linear_cross_entropy_kernels()) check_against_reference(*kernels, at::kCPU);
}

TEST_CASE("the gradients of the token loss match float64") {
  check_token_gradients(reference_linear_cross_entropy_kernels(), at::kCPU);
  for (const auto* kernels : all_cpu_linear_cross_entropy_kernels()) {
    check_token_gradients(*kernels, at::kCPU);
    check_converted_tokens(*kernels, at::kCPU);
    check_strided_tokens(*kernels, at::kCPU);
  }
}

TEST_CASE("a token loss without a row that counts is NaN, its gradients are 0") {
  check_only_padding(reference_linear_cross_entropy_kernels(), at::kCPU);
  for (const auto* kernels : all_cpu_linear_cross_entropy_kernels()) check_only_padding(*kernels, at::kCPU);
}

TEST_CASE("extreme logits give the same token loss as libtorch") {
  for (const auto* kernels : all_cpu_linear_cross_entropy_kernels()) check_extreme_tokens(*kernels, at::kCPU);
}

TEST_CASE("a token that is no class is refused") {
  for (const int64_t wrong : {-1, 10, -101}) {
    TokenBatch batch = token_batch(4, 3, 10, at::kFloat, at::kCPU);
    batch.target[2] = wrong;
    CHECK_THROWS_AS(cpu_linear_cross_entropy_kernels().run(batch.hidden, batch.weight, batch.target, {}),
                    c10::IndexError);
  }
}

TEST_CASE("the rows of the token loss do not depend on the number of threads") {
  at::manual_seed(45);
  // One value per hidden state: libtorch's products have nothing to add for the logits.
  const TokenBatch batch = token_batch(131, 1, 1001, at::kFloat, at::kCPU);
  for (const auto* kernels : all_cpu_linear_cross_entropy_kernels()) {
    const auto loss = [&] { return kernels->run(batch.hidden, batch.weight, batch.target, {.of_weight = true}).loss; };
    CHECK(on_threads(1, loss).equal(on_threads(4, loss)));
  }
}

TEST_CASE("the gradients of the token loss are finished in place, so a second backward is refused") {
  const TokenBatch batch = token_batch(4, 3, 10, at::kFloat, at::kCPU);
  const at::Tensor weight = batch.weight.requires_grad_(),
                   loss = linear_cross_entropy(batch.hidden, weight, batch.target, at::kFloat,
                                               cpu_linear_cross_entropy_kernels());
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = weight.grad().clone();
  CHECK_THROWS_WITH(loss.backward(), ContainsSubstring("modified by an inplace operation"));
  CHECK(weight.grad().equal(once));
}

TEST_CASE("the logits of the token loss never exist as a whole") {
  install_counting_allocator();
  constexpr int64_t kRows = 1000, kWidth = 4, kClasses = 5000;
  for (const auto type : kTokenTypes) {
    const TokenBatch batch = token_batch(kRows, kWidth, kClasses, type, at::kCPU);
    const at::Tensor hidden = batch.hidden.requires_grad_(), weight = batch.weight.requires_grad_();
    for (const auto* kernels : all_cpu_linear_cross_entropy_kernels()) {
      const Pieces pieces = kernels->pieces(kRows, kClasses, type);
      const int64_t logits = kRows * kClasses * static_cast<int64_t>(c10::elementSize(type));
      CHECK(static_cast<double>(pieces.bytes) < 0.15 * static_cast<double>(2 * logits));
      const int64_t before = cpu_tensor_memory()->live;
      reset_cpu_tensor_peak();
      torch::autograd::grad({linear_cross_entropy(hidden, weight, batch.target, type, *kernels)}, {hidden, weight});
      // Weight and gradients: 4 values beside the 1000 logits of a class.
      const auto held = static_cast<double>(cpu_tensor_memory()->peak - before - pieces.bytes);
      CHECK(held < 0.03 * static_cast<double>(2 * logits));
    }
  }
}

TEST_CASE("pieces of the token loss are about equal, not too small, and cover all rows") {
  for (const auto type : kTokenTypes)
    for (const int64_t rows : {1, 63, 64, 65, 2048, 100000}) {
      const Pieces pieces = cpu_linear_cross_entropy_kernels().pieces(rows, 50257, type);
      INFO(rows << " in " << pieces.count << " of " << pieces.rows);
      CHECK((pieces.count - 1) * pieces.rows < rows);
      CHECK(pieces.count * pieces.rows >= rows);
      CHECK(pieces.rows >= std::min<int64_t>(rows, 33));
      CHECK(pieces.rows <= 4096);
      CHECK(pieces.stride >= 50257);
    }
}

TEST_CASE("kernels for meta tensors allocate what the kernels of the token loss allocate") {
  install_counting_allocator();
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto run = [&](at::Device device, const LinearCrossEntropyKernels& kernels, const auto& before_backward) {
      const auto options = at::TensorOptions(device).dtype(type);
      const at::Tensor hidden = at::zeros({3000, 8}, options).requires_grad_(),
                       weight = at::zeros({5000, 8}, options).requires_grad_(),
                       target = at::zeros({3000}, options.dtype(at::kLong));
      const int64_t before = before_backward();
      const auto gradients =
          torch::autograd::grad({linear_cross_entropy(hidden, weight, target, type, kernels)}, {hidden, weight});
      CHECK(gradients[0].sizes() == hidden.sizes());
      CHECK(gradients[1].sizes() == weight.sizes());
      CHECK(gradients[1].scalar_type() == type);
      return before;
    };
    const int64_t before = run(at::kCPU, *all_cpu_linear_cross_entropy_kernels().front(), [] {
      reset_cpu_tensor_peak();
      return cpu_tensor_memory()->live;
    });
    const int64_t real = cpu_tensor_memory()->peak - before;
    open_meta_device();
    Peak seen;
    const ListenToMemory listens(at::kMeta, seen);
    const int64_t inputs = run(at::kMeta, meta_linear_cross_entropy_kernels(), [&] { return seen.live; });
    // Only work space within libtorch's operations is missing, of which those in 16 bits have some.
    CHECK(static_cast<double>(seen.peak - inputs) ==
          Approx(static_cast<double>(real)).epsilon(type == at::kFloat ? 0.01 : 0.15));
  }
}

TEST_CASE("the token loss posts what it did not allocate") {
  const TokenBatch batch = token_batch(1000, 4, 500, at::kBFloat16, at::kCPU);
  const at::Tensor weight = batch.weight.requires_grad_();
  StepTrace trace;
  {
    const StepObserver observer(trace.operations);
    linear_cross_entropy(batch.hidden, weight, batch.target, at::kBFloat16, cpu_linear_cross_entropy_kernels())
        .backward();
    const at::NoGradGuard evaluation;
    linear_cross_entropy(batch.hidden, weight, batch.target, at::kBFloat16, cpu_linear_cross_entropy_kernels());
  }
  const Pieces pieces = cpu_linear_cross_entropy_kernels().pieces(1000, 500, at::kBFloat16);
  const TracedOperation* posted = trace.find(kLinearCrossEntropyLabel);
  REQUIRE(posted != nullptr);
  CHECK(trace.calls(kLinearCrossEntropyLabel) == 1);
  CHECK(posted->number(0) == 1000);
  CHECK(posted->number(1) == 500);
  CHECK(posted->number(2) == pieces.count);
  CHECK(posted->number(3) == pieces.bytes);
  CHECK(posted->number(4) == 1000 * 500 * (2 + 4 + 2));  // logits, their float32 copy, their gradient
  CHECK(trace.calls(kLinearCrossEntropyGradientLabel) == 1);
}
