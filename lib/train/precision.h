// The number format of forward and backward. FullPrecision is the plain part: float32 throughout, nothing scaled,
// nothing overflows.
#pragma once

#include "train/archive.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace trainopt {

class Gradients;

/// Autocast for its lifetime, on this thread; none if `dtype` is null. libtorch has no such guard of its own.
class AutocastGuard {
 public:
  AutocastGuard(at::DeviceType device, std::optional<at::ScalarType> dtype);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  at::DeviceType device_;
  bool active_ = false, was_enabled_ = false;
  at::ScalarType old_dtype_ = at::kFloat;
};

class Precision {
 public:
  virtual ~Precision() = default;
  virtual AutocastGuard autocast() = 0;
  virtual void backward(const at::Tensor& loss) = 0;
  /// Undoes the loss scale. Returns a float on the device, 1 if a gradient of any rank is not finite and 0 otherwise;
  /// undefined if this precision does not check.
  virtual at::Tensor unscale(Gradients& gradients) = 0;
  /// After the optimizer. Nothing of this precision's state changes where `rolled_back` (a float on the device, may be
  /// undefined) is 1: the step will be taken back.
  virtual void update(const at::Tensor& overflow, const at::Tensor& rolled_back) = 0;
  /// The factor the loss was multiplied by in this step (0-dim, on the device); undefined without one.
  virtual at::Tensor loss_scale() const { return {}; }
  virtual void save(ArchiveWriter&) const {}
  virtual void load(const ArchiveReader&) {}
};

class FullPrecision : public Precision {
 public:
  AutocastGuard autocast() override { return {at::kCPU, std::nullopt}; }
  void backward(const at::Tensor& loss) override { loss.backward(); }
  at::Tensor unscale(Gradients&) override { return {}; }
  void update(const at::Tensor&, const at::Tensor&) override {}
};

}  // namespace trainopt
