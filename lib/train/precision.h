// The number format of forward and backward. FullPrecision is the plain part: float32 throughout, without loss scaling
// or overflow checks.
#pragma once

#include "device/autocast.h"
#include "train/checkpoint/archive.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <utility>

namespace trainopt {

class Gradients;

class Precision {
 public:
  virtual ~Precision() = default;
  virtual AutocastGuard autocast() = 0;
  virtual void backward(const at::Tensor& loss) = 0;
  /// Undoes the loss scale. Returns a float on the device: 1 if a gradient of any rank is non-finite, otherwise 0.
  /// Undefined if this precision does not check.
  virtual at::Tensor unscale(Gradients& gradients) = 0;
  /// Call after the optimizer. This precision's state does not change if `rolled_back` (a float on the device, may be
  /// undefined) is 1, because the step will be undone.
  virtual void update(const at::Tensor& overflow, const at::Tensor& rolled_back) = 0;
  /// The factor by which this step's loss was multiplied (0-dim, on the device); undefined without loss scaling.
  virtual at::Tensor loss_scale() const { return {}; }
  /// How many updates of this process were skipped because gradients were not finite: all, and those since the last one
  /// that was not skipped (int64, [2], on the device). Undefined without loss scaling.
  virtual at::Tensor skipped_updates() const { return {}; }
  virtual void save(ArchiveWriter&) const {}
  virtual void load(const ArchiveReader&) {}
};

/// A precision around another one. Derived classes override some functions and call them here too.
class WrappedPrecision : public Precision {
 public:
  explicit WrappedPrecision(std::unique_ptr<Precision> inner) : inner_(std::move(inner)) {}
  AutocastGuard autocast() override { return inner_->autocast(); }
  void backward(const at::Tensor& loss) override { inner_->backward(loss); }
  at::Tensor unscale(Gradients& gradients) override { return inner_->unscale(gradients); }
  void update(const at::Tensor& overflow, const at::Tensor& rolled_back) override {
    inner_->update(overflow, rolled_back);
  }
  at::Tensor loss_scale() const override { return inner_->loss_scale(); }
  at::Tensor skipped_updates() const override { return inner_->skipped_updates(); }
  void save(ArchiveWriter& archive) const override { inner_->save(archive); }
  void load(const ArchiveReader& archive) override { inner_->load(archive); }

 private:
  std::unique_ptr<Precision> inner_;
};

class FullPrecision : public Precision {
 public:
  AutocastGuard autocast() override { return {at::kCPU, std::nullopt}; }
  void backward(const at::Tensor& loss) override { loss.backward(); }
  at::Tensor unscale(Gradients&) override { return {}; }
  void update(const at::Tensor&, const at::Tensor&) override {}
};

}  // namespace trainopt
