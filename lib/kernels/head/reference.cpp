#include "kernels/head/head.h"

#include "kernels/tensors.h"

#include "device/tensor.h"

#include <limits>

namespace trainopt::kernels {
namespace {

class ReferenceHeadKernels : public HeadKernels {
 public:
  at::Tensor mean(const at::Tensor& x) const override { return wide(x).mean({2, 3}).to(x.scalar_type()); }
  at::Tensor mean_gradient(const at::Tensor& gradient, int64_t height, int64_t width) const override {
    const at::Tensor share = (wide(gradient) / static_cast<double>(height * width)).to(gradient.scalar_type());
    return share.view({gradient.size(0), gradient.size(1), 1, 1})
        .expand({-1, -1, height, width})
        .contiguous(at::MemoryFormat::ChannelsLast);
  }

  CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing) const override {
    constexpr int64_t kIgnored = std::numeric_limits<int64_t>::min();  // matches no target
    at::Tensor loss = at::cross_entropy_loss(wide(logits), target, {}, at::Reduction::Mean, kIgnored, smoothing);
    at::Tensor gradient = wide(logits).softmax(1) - smoothing / static_cast<double>(logits.size(1));
    gradient.scatter_add_(1, target.unsqueeze(1), at::full({logits.size(0), 1}, smoothing - 1, gradient.options()));
    return {std::move(loss), (gradient * stored_gradient_scale(logits.scalar_type())).to(logits.scalar_type())};
  }
  void finish_gradient(at::Tensor& gradient, const at::Tensor& upstream) const override {
    gradient.copy_(wide(gradient) * (upstream / (static_cast<double>(gradient.size(0)) *
                                                 static_cast<double>(stored_gradient_scale(gradient.scalar_type())))));
  }
};

}  // namespace

const HeadKernels& reference_head_kernels() {
  static const ReferenceHeadKernels kernels;
  return kernels;
}

}  // namespace trainopt::kernels
