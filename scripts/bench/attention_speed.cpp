// Attention on the CPU against libtorch's flash attention, forward and backward. Prints one JSON object per type and
// shape: milliseconds of each side and the ratios. Both sides take turns; a ratio is the median over the turns.
#include "base/clock.h"
#include "base/json.h"
#include "autograd.h"
#include "device/device_allocator.h"
#include "device/tensor.h"
#include "kernels/attention/attention.h"
#include "metrics/summary.h"

#include <ATen/ops/scaled_dot_product_attention.h>

#include <cstdlib>
#include <functional>
#include <iostream>

using namespace trainopt;

namespace {

struct Shape {
  const char* of;
  int64_t samples, heads, tokens, width;
  bool causal;
};
constexpr Shape kShapes[] = {{"vit_s_16, batch 16", 16, 6, 197, 64, false},
                             {"gpt2 of width 384, batch 8", 8, 6, 256, 64, true},
                             {"gpt2 small, batch 1", 1, 12, 1024, 64, true}};

double seconds_of(const std::function<void()>& work) {
  const auto began = Clock::now();
  work();
  return seconds_since(began);
}

struct Times {
  std::vector<double> forward, backward;
};

}  // namespace

/// Argument: turns.
int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 15;
  install_caching_allocator(/*huge_pages=*/true);
  for (const Shape& shape : kShapes)
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const auto parts = at::randn({shape.samples, shape.tokens, 3 * shape.heads * shape.width})
                             .to(type)
                             .split(shape.heads * shape.width, 2);
      const auto leaf = [&](const at::Tensor& part) {
        return part.unflatten(2, {shape.heads, shape.width}).transpose(1, 2).detach().requires_grad_();
      };
      const at::Tensor query = leaf(parts[0]), key = leaf(parts[1]), value = leaf(parts[2]);
      const at::Tensor gradient =
          at::randn({shape.samples, shape.tokens, shape.heads, shape.width}).to(type).transpose(1, 2);
      const auto turn = [&](Times& times, const std::function<at::Tensor()>& attention) {
        at::Tensor output;
        times.forward.push_back(seconds_of([&] { output = attention(); }));
        times.backward.push_back(seconds_of([&] { torch::autograd::grad({output}, {query, key, value}, {gradient}); }));
      };
      Times ours, theirs;
      for (int i = 0; i <= turns; ++i) {
        turn(ours, [&] {
          return kernels::attention({query, key, value, shape.causal}, kernels::cpu_attention_kernels());
        });
        turn(theirs, [&] { return at::scaled_dot_product_attention(query, key, value, {}, 0, shape.causal); });
        if (i == 0) ours = theirs = {};  // warm-up
      }
      const auto ratio = [](const std::vector<double>& of_theirs, const std::vector<double>& of_ours) {
        std::vector<double> ratios;
        for (size_t i = 0; i < of_ours.size(); ++i) ratios.push_back(of_theirs[i] / of_ours[i]);
        return percentile(ratios, 0.5);
      };
      std::cout << Json{{"shape", shape.of},
                        {"type", c10::toString(type)},
                        {"forward_ms", 1e3 * percentile(ours.forward, 0.5)},
                        {"libtorch_forward_ms", 1e3 * percentile(theirs.forward, 0.5)},
                        {"forward_ratio", ratio(theirs.forward, ours.forward)},
                        {"backward_ms", 1e3 * percentile(ours.backward, 0.5)},
                        {"libtorch_backward_ms", 1e3 * percentile(theirs.backward, 0.5)},
                        {"backward_ratio", ratio(theirs.backward, ours.backward)}}
                       .dump()
                << std::endl;
    }
  return 0;
}
