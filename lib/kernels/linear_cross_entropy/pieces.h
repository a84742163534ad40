// The loop over pieces of rows, the same on every device. An implementation adds what happens within a row of logits.
#pragma once

#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace trainopt::kernels {

class LinearCrossEntropyInPieces : public LinearCrossEntropyKernels {
 public:
  LinearCrossEntropy run(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target,
                         WantedGradients wanted) const final;
  Pieces pieces(int64_t rows, int64_t classes, at::ScalarType type) const final;

 protected:
  struct Piece {
    at::Tensor buffer;  ///< [rows, stride]: the logits, and whatever is past the classes
    int64_t classes;
    at::Tensor target;  ///< [rows]
    at::Tensor losses;  ///< [rows], float32: to be written, 0 for ignored rows
    bool with_gradient;
  };

  virtual void check(const at::Tensor& hidden, const at::Tensor& target, int64_t classes) const = 0;
  /// The type of the logits and of the operands of all products.
  virtual at::ScalarType product_type(at::ScalarType type) const { return type; }
  /// Writes the losses. If wanted, replaces the logits by the gradient of the sum of the losses, ×
  /// stored_gradient_scale() (head/head.h).
  virtual void losses(const Piece& piece) const = 0;
  /// Writes `loss` and `share` of LinearCrossEntropy.
  virtual void mean(const at::Tensor& losses, const at::Tensor& target, LinearCrossEntropy& result) const = 0;
};

}  // namespace trainopt::kernels
