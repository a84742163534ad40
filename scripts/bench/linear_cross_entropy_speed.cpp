// The loss of a language model's last layer with its gradients on the CPU: linear layer and cross entropy in pieces
// against libtorch's two operations. Prints one JSON object per type: seconds of each side, the ratio, and the most
// bytes of tensors that each side holds at once beyond its inputs. Both sides take turns; the ratio is the median over
// the turns.
#include "base/clock.h"
#include "base/json.h"
#include "autograd.h"
#include "device/device_allocator.h"
#include "device/tensor.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"
#include "metrics/summary.h"

#include <cstdlib>
#include <functional>
#include <iostream>
#include <string_view>

using namespace trainopt;

namespace {

double seconds_of(const std::function<void()>& work) {
  const auto began = Clock::now();
  work();
  return seconds_since(began);
}

double peak_of(const std::function<void()>& work) {
  const int64_t before = cpu_tensor_memory()->live;
  reset_cpu_tensor_peak();
  work();
  return static_cast<double>(cpu_tensor_memory()->peak - before) / 0x1p20;
}

}  // namespace

/// Arguments: turns, rows, width, classes, and `caching` for cached allocations on both sides (default: malloc's).
int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 9;
  const int64_t rows = argc > 2 ? std::atoll(argv[2]) : 2048, width = argc > 3 ? std::atoll(argv[3]) : 384,
                classes = argc > 4 ? std::atoll(argv[4]) : 50257;
  if (argc > 5 && std::string_view(argv[5]) == "caching")
    install_caching_allocator(/*huge_pages=*/true);
  else
    install_counting_allocator();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor hidden = at::randn({rows, width}).to(type).requires_grad_(),
                     weight = (at::randn({classes, width}) * 0.02).to(type).requires_grad_(),
                     target = at::randint(classes, {rows}, at::kLong);
    const auto& kernels = kernels::cpu_linear_cross_entropy_kernels();
    const std::function<void()> ours = [&, type = type] {
      torch::autograd::grad({kernels::linear_cross_entropy(hidden, weight, target, type, kernels)}, {hidden, weight});
    };
    const std::function<void()> plain = [&] {
      const at::Tensor logits = at::linear(hidden, weight).to(at::kFloat);  // as under autocast
      torch::autograd::grad({at::cross_entropy_loss(logits, target)}, {hidden, weight});
    };
    const double our_peak = peak_of(ours), plain_peak = type == at::kHalf ? 0 : peak_of(plain);
    std::vector<double> our_seconds, plain_seconds, ratios;
    for (int turn = 0; turn < turns; ++turn) {
      const double before = seconds_of(ours);
      if (type == at::kHalf) {  // libtorch's would take minutes
        our_seconds.push_back(before);
        continue;
      }
      const double theirs = seconds_of(plain), after = seconds_of(ours);
      our_seconds.push_back((before + after) / 2);
      plain_seconds.push_back(theirs);
      ratios.push_back(theirs / our_seconds.back());
    }
    const kernels::Pieces pieces = kernels.pieces(rows, classes, type);
    Json row{{"type", c10::toString(type)},
             {"pieces", pieces.count},
             {"buffer_of_logits_and_gradient",
              static_cast<double>(pieces.bytes) /
                  static_cast<double>(2 * rows * classes * static_cast<int64_t>(c10::elementSize(type)))},
             {"peak_mib", our_peak},
             {"s", percentile(our_seconds, 0.5)}};
    if (!ratios.empty())
      row.update({{"plain_peak_mib", plain_peak},
                  {"plain_s", percentile(plain_seconds, 0.5)},
                  {"ratio", percentile(ratios, 0.5)}});
    std::cout << row.dump() << std::endl;
  }
  return 0;
}
