// The memory that oneDNN takes on a CPU while it computes the gradients of convolutions of groups in NHWC: it pads each
// group to blocks of channels, up to 256 times the weight's size. How much depends on the CPU and on oneDNN's version,
// so it is measured, on one image.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace trainopt {

/// The sizes, types and strides of a convolution's backward pass. The tensors may be on the meta device.
struct ConvolutionGradients {
  const at::Tensor &gradient, &input, &weight;
  at::IntArrayRef stride, padding, dilation;
  int64_t groups;
  std::array<bool, 3> wanted;  ///< the gradients of input, weight and bias
};

/// Bytes beside those of the results, for as long as it takes. Each kind of convolution is computed once.
int64_t onednn_scratch_bytes(const ConvolutionGradients& convolution);

/// During its lifetime, tensors of this thread on the meta device stand for some on this CPU.
class MetaStandsForCpu {
 public:
  explicit MetaStandsForCpu(bool stands);
  ~MetaStandsForCpu();
  MetaStandsForCpu(const MetaStandsForCpu&) = delete;
  MetaStandsForCpu& operator=(const MetaStandsForCpu&) = delete;

  static bool now();

 private:
  bool before_;
};

}  // namespace trainopt
