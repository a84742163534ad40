// Winograd convolution against libtorch's on the CPU: the 3×3 convolutions of ResNet-18's four stages and both their
// gradients. Prints one JSON object per line: stage, type, pass, operations per second (counted as in a direct
// convolution), and the ratio. Both sides take turns; the ratio is the median over the turns.
#include "base/clock.h"
#include "base/json.h"
#include "device/caching_allocator.h"
#include "device/tensor.h"
#include "metrics/summary.h"
#include "kernels/winograd/winograd.h"

#include <ATen/core/grad_mode.h>

#include <functional>
#include <iostream>

using namespace trainopt;

namespace {

double seconds_of(const std::function<void()>& work) {
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
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const auto& [channels, side] : {std::pair(64, 56), {128, 28}, {256, 14}, {512, 7}}) {
      const auto tensor = [type = type](at::IntArrayRef shape) {
        return at::randn(shape).to(type).contiguous(at::MemoryFormat::ChannelsLast);
      };
      const at::Tensor x = tensor({images, channels, side, side}), w = tensor({channels, channels, 3, 3}),
                       g = tensor({images, channels, side, side});
      const auto backward = [&](bool of_input) {
        at::convolution_backward(g, x, w, std::nullopt, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1,
                                 {of_input, !of_input, false});
      };
      struct Pass {
        const char* name;
        std::function<void()> ours, theirs;
      };
      const std::vector<Pass> passes = {
          {"forward", [&] { kernels::winograd::convolution(x, w); }, [&] { at::conv2d(x, w, {}, 1, 1); }},
          {"input gradient", [&] { kernels::winograd::input_gradient(g, w); }, [&] { backward(true); }},
          {"weight gradient", [&] { kernels::winograd::weight_gradient(g, x, type); }, [&] { backward(false); }}};
      for (const Pass& pass : passes) {
        pass.ours();
        pass.theirs();
        std::vector<double> ratios, ours;
        for (int turn = 0; turn < turns; ++turn) {
          const double before = seconds_of(pass.ours), their = seconds_of(pass.theirs), after = seconds_of(pass.ours);
          ours.push_back((before + after) / 2);
          ratios.push_back(their / ours.back());
        }
        const double operations = 2.0 * static_cast<double>(x.numel()) * channels * 9;
        std::cout << Json{{"channels", channels},
                          {"side", side},
                          {"type", c10::toString(type)},
                          {"pass", pass.name},
                          {"gflop_per_s", operations / percentile(ours, 0.5) / 1e9},
                          {"ratio", percentile(ratios, 0.5)}}
                         .dump()
                  << std::endl;
      }
    }
  return 0;
}
