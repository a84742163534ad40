#include "compare/perturbed_weights.h"

#include "base/philox.h"
#include "device/tensor.h"
#include "train/plan.h"

namespace trainopt {
namespace {

constexpr uint64_t kSigns = 0x7065727475726264;  // separates these draws from those of the initial weights

/// 1 ± `by` for each of `count` elements, on the CPU. One Philox block provides 128 signs.
at::Tensor factors(int64_t count, double by, uint64_t key) {
  at::Tensor all = at::empty({count}, at::kFloat);
  float* const out = all.mutable_data_ptr<float>();
  PhiloxBlock bits{};
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<uint64_t>(i);
    if (index % 128 == 0) bits = philox(key, 0, index / 128);
    const bool up = bits[index % 128 / 32] >> (index % 32) & 1;
    out[i] = static_cast<float>(up ? 1 + by : 1 - by);
  }
  return all;
}

}  // namespace

void perturb_weights(Model& model, uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (auto& [name, parameter] : model.parameters()) {
    const double by = parameter.scalar_type() == at::kBFloat16 ? kPerturbationOfBfloat16 : kPerturbation;
    parameter.mul_(factors(parameter.numel(), by, mix_key(mix_key(seed, kSigns), name))
                       .view(parameter.sizes())
                       .to(parameter.device()));
  }
}

void begin_perturbed(Plan& plan) {
  // The convolution slot is built first, before any part that keeps copies of the weights.
  plan.convolution.wrap("perturbed twin", "from perturbed weights",
                        [](const BuildContext& context, std::unique_ptr<ConvolutionOperations> inner) {
                          perturb_weights(*context.model, context.plan.seed);
                          return inner;
                        });
}

}  // namespace trainopt
