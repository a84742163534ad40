// How much of a plain copy's bandwidth each pass of the fused kernels reaches. Prints a JSON object a line: pass, type, bytes that it must move,
// its bandwidth ÷ the copy's. Pass and copy take turns; the median of the turns' ratios counts.
#include "base/clock.h"
#include "base/json.h"
#include "device/host_allocator.h"
#include "optimizations/fused_kernels/norm_kernels.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>

using namespace trainopt;
using namespace trainopt::fused_kernels;

namespace {

struct Pass {
  std::string name;
  double tensors;   ///< of x's size that it must read or write
  std::function<void()> run;
};

double seconds_of(const std::function<void()>& work) {
  const auto began = Clock::now();
  work();
  return seconds_since(began);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

/// Arguments: turns, images; then 64 channels of 112 × 112 each, as behind a ResNet's first convolution.
int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 9;
  const int64_t images = argc > 2 ? std::atoll(argv[2]) : 32;
  const at::NoGradGuard no_grad;
  install_keeping_allocator(/*huge_pages=*/true);   // no page faults in the results: a pass is measured, not malloc
  const NormKernels& kernels = cpu_kernels();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto tensor = [&](int64_t side) { return at::randn({images, 64, side, side}).to(type).contiguous(at::MemoryFormat::ChannelsLast); };
    const at::Tensor x = tensor(112), gradient = tensor(112), y = tensor(112), of_pool = tensor(56);
    const at::Tensor scale = at::rand({64}) + 0.5, shift = at::randn({64}), mean = at::randn({64});
    const Pooled pooled = kernels.pool(x, scale, shift);
    const double places = 0.25 / static_cast<double>(x.element_size());
    at::Tensor g;
    const std::vector<Pass> passes = {
        {"moments", 1, [&] { kernels.moments(x); }},
        {"apply, relu", 2, [&] { kernels.apply(x, scale, shift, {}, true); }},
        {"apply, add, relu", 3, [&] { kernels.apply(x, scale, shift, y, true); }},
        {"sums through relu", 2, [&] { kernels.sums_through_relu(gradient, x, mean, scale, shift); }},
        {"sums through output", 4, [&] { kernels.sums_through_output(gradient, y, x, mean, g); }},
        {"input gradient through relu", 3, [&] { kernels.input_gradient_through_relu(gradient, x, scale, shift, mean, scale, shift); }},
        {"input gradient", 3, [&] { kernels.input_gradient(gradient, x, scale, shift, mean); }},
        {"pool", 1.25 + places, [&] { kernels.pool(x, scale, shift); }},
        {"sums through pool", 1.25 + places, [&] { kernels.sums_through_pool(of_pool, pooled.places, x, mean); }},
        {"input gradient through pool", 2.25 + places, [&] { kernels.input_gradient_through_pool(of_pool, pooled.places, x, scale, shift, mean); }},
    };
    at::Tensor copied = at::empty_like(x);
    const auto copy = [&] {
      at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t begin, int64_t end) {
        const int64_t threads = at::get_num_threads(), bytes = static_cast<int64_t>(x.nbytes());
        const int64_t first = bytes * begin / threads, last = bytes * end / threads;
        std::memcpy(static_cast<char*>(copied.mutable_data_ptr()) + first, static_cast<const char*>(x.const_data_ptr()) + first, static_cast<size_t>(last - first));
      });
    };
    for (const Pass& pass : passes) {
      std::vector<double> ratios, copies;
      pass.run();
      for (int turn = 0; turn < turns; ++turn) {
        const double before = seconds_of(copy), ours = seconds_of(pass.run), after = seconds_of(copy);
        const double of_copy = 2 / ((before + after) / 2);
        ratios.push_back(pass.tensors / ours / of_copy);
        copies.push_back(of_copy * static_cast<double>(x.nbytes()));
      }
      std::cout << Json{{"pass", pass.name}, {"type", c10::toString(type)}, {"mib", pass.tensors * static_cast<double>(x.nbytes()) / 0x1p20}, {"of_copy", median(ratios)},
                        {"copy_gb_per_s", median(copies) / 1e9}}.dump() << std::endl;
    }
  }
  return 0;
}
