#include "optimizations/fused_kernels/language_head.h"

#include "base/error.h"
#include "device/autocast.h"
#include "kernels/linear_cross_entropy/autograd.h"
#include "kernels/meta.h"

namespace trainopt::fused_kernels {
namespace {

static_assert(kIgnoredTarget == kernels::LinearCrossEntropyKernels::kIgnored);

class FusedLanguageHead : public LanguageHeadOperations {
 public:
  explicit FusedLanguageHead(const kernels::LinearCrossEntropyKernels& kernels) : kernels_(kernels) {}

  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target) const override {
    const at::ScalarType type = autocast_type(hidden.device().type()).value_or(hidden.scalar_type());
    return kernels::linear_cross_entropy(hidden.flatten(0, -2), weight, target.flatten(), type, kernels_);
  }

 private:
  const kernels::LinearCrossEntropyKernels& kernels_;
};

}  // namespace

const kernels::LinearCrossEntropyKernels& language_head_kernels(at::Device device) {
  if (device.is_meta()) return kernels::meta_linear_cross_entropy_kernels();
  if (device.is_cpu()) return kernels::cpu_linear_cross_entropy_kernels();
  const auto* on_gpu = kernels::cuda_linear_cross_entropy_kernels();
  TRAINOPT_CHECK(on_gpu != nullptr);
  return *on_gpu;
}

std::unique_ptr<LanguageHeadOperations> make_fused_language_head(const kernels::LinearCrossEntropyKernels& kernels) {
  return std::make_unique<FusedLanguageHead>(kernels);
}

}  // namespace trainopt::fused_kernels
