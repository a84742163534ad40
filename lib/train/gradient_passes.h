// What is done to all gradients of a step between backward and the update. The plain form does each thing at once, in a
// pass of its own; an optimizer that reads the gradients anyway may bring another (ParameterStore::passes()).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainopt {

/// Gradients are those of a step, all of them in each call; factors and flags are 0-dim floats on their device. The
/// host is never asked.
class GradientPasses {
 public:
  virtual ~GradientPasses() = default;

  /// Gradients are those of another step, or of one that begins again: what was kept of them is of no use.
  virtual void begin() {}
  /// `not_finite` becomes 1 if a gradient is not finite; otherwise it stays.
  virtual void look(const std::vector<at::Tensor>& gradients, at::Tensor& not_finite);
  /// The same, and multiplies them by `factor`.
  virtual void scale(const std::vector<at::Tensor>& gradients, const at::Tensor& factor, at::Tensor& not_finite);
  /// [n]: 2-norms of groups of them (the plain form: of each), together of all.
  virtual at::Tensor norms(const std::vector<at::Tensor>& gradients);
  /// Multiplies them by `factor`.
  virtual void shorten(const std::vector<at::Tensor>& gradients, const at::Tensor& factor);
  /// The values that count now, of one that was given to the others.
  virtual at::Tensor values(const at::Tensor& gradient) const { return gradient; }
  /// Behind the update: zeros.
  virtual void clear(const std::vector<at::Tensor>& gradients);
};

}  // namespace trainopt
