// Winograd convolution against libtorch's on the CPU: the 3×3 convolutions of ResNet-18's four stages and both their
// gradients. Prints one JSON object per line: stage, type, what the products read, pass, operations per second (counted
// as in a direct convolution), the ratio, and the errors of both sides against float64 (norm of the difference ÷ norm
// of the result). Both sides take turns; the ratio is the median over the turns.
#include "base/clock.h"
#include "base/json.h"
#include "device/device_allocator.h"
#include "device/tensor.h"
#include "kernels/winograd/winograd.h"
#include "metrics/summary.h"

#include <ATen/core/grad_mode.h>

#include <functional>
#include <iostream>

using namespace trainopt;

namespace {

template <class F>
double seconds_of(const F& work) {
  const auto began = Clock::now();
  work();
  return seconds_since(began);
}

}  // namespace

/// Arguments: turns, images.
int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 9;
  const int64_t images = argc > 2 ? std::atoll(argv[2]) : 32;
  const at::NoGradGuard no_grad;
  install_caching_allocator(/*huge_pages=*/true);  // on both sides
  using kernels::winograd::Products;
  for (const auto& [type, products] :
       {std::pair(at::kFloat, Products::full), {at::kBFloat16, Products::full}, {at::kBFloat16, Products::bfloat16}})
    for (const auto& [channels, side] : {std::pair(64, 56), {128, 28}, {256, 14}, {512, 7}}) {
      const auto tensor = [type = type](at::IntArrayRef shape) {
        return at::randn(shape).to(type).contiguous(at::MemoryFormat::ChannelsLast);
      };
      const at::Tensor x = tensor({images, channels, side, side}), w = tensor({channels, channels, 3, 3}),
                       g = tensor({images, channels, side, side});
      const auto forward_in = [&](at::ScalarType of) { return at::conv2d(x.to(of), w.to(of), {}, 1, 1); };
      const auto backward_in = [&](at::ScalarType of, bool of_input) {
        const auto [of_x, of_w, of_bias] =
            at::convolution_backward(g.to(of), x.to(of), w.to(of), std::nullopt, {1, 1}, {1, 1}, {1, 1}, false, {0, 0},
                                     1, {of_input, !of_input, false});
        return of_input ? of_x : of_w;
      };
      struct Pass {
        const char* name;
        std::function<at::Tensor()> ours;
        std::function<at::Tensor(at::ScalarType)> theirs;
      };
      using namespace kernels::winograd;
      const std::vector<Pass> passes = {{"forward", [&] { return convolution(x, w, products); }, forward_in},
                                        {"input gradient", [&] { return input_gradient(g, w, products); },
                                         [&](at::ScalarType of) { return backward_in(of, true); }},
                                        {"weight gradient", [&] { return weight_gradient(g, x, type, products); },
                                         [&](at::ScalarType of) { return backward_in(of, false); }}};
      for (const Pass& pass : passes) {
        const at::Tensor wanted = pass.theirs(at::kDouble);
        const auto error = [&](const at::Tensor& result) {
          return ((result.to(at::kDouble) - wanted).norm() / wanted.norm()).item<double>();
        };
        const double error_of_ours = error(pass.ours()), error_of_theirs = error(pass.theirs(type));
        std::vector<double> ratios, ours;
        for (int turn = 0; turn < turns; ++turn) {
          const double before = seconds_of(pass.ours), their = seconds_of([&] { pass.theirs(type); }),
                       after = seconds_of(pass.ours);
          ours.push_back((before + after) / 2);
          ratios.push_back(their / ours.back());
        }
        const double operations = 2.0 * static_cast<double>(x.numel()) * channels * 9;
        std::cout << Json{{"channels", channels},
                          {"side", side},
                          {"type", c10::toString(type)},
                          {"products", products == Products::full ? "float32" : "bfloat16"},
                          {"pass", pass.name},
                          {"gflop_per_s", operations / percentile(ours, 0.5) / 1e9},
                          {"ratio", percentile(ratios, 0.5)},
                          {"error", error_of_ours},
                          {"error_of_libtorch", error_of_theirs}}
                         .dump()
                  << std::endl;
      }
    }
  return 0;
}
