// A unit is a part of a network with one input and one output tensor. Activation checkpointing, gathering of sharded
// parameters, offload, pipeline stages and trace labels attach to a network by wrapping its units.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainopt {

/// Values without gradient that a unit computes for later ones, such as masks. They belong to one micro-batch.
struct SideValues;

struct ForwardContext {
  bool training = false;
  /// On the model's device; dropout draws from it. None: the device's default generator.
  std::optional<at::Generator> generator = std::nullopt;
  /// int64 batch × tokens: the last unit of a language model then returns their loss (LanguageHeadOperations) instead
  /// of the logits, so that these need not exist as a whole. Undefined: it returns the logits.
  at::Tensor target = {};
  std::shared_ptr<SideValues> side = nullptr;  ///< set by Model::forward()
};

/// Sizes of one sample, without the batch dimension.
using SampleShape = std::vector<int64_t>;

class Unit {
 public:
  virtual ~Unit() = default;
  virtual std::string name() const = 0;  ///< the common prefix of its parameters; "stem", "patch_embedding", "head"
  virtual at::Tensor forward(const at::Tensor& input, const ForwardContext& context) = 0;
  /// Returns the output shape for a sample of this shape, and adds the forward operations (2 × multiply-adds) to
  /// `flops`. Computes no values.
  virtual SampleShape shape_after(const SampleShape& input, double& flops) const = 0;
  /// Whether the output is a sum to which the unit's last matrix product is added, perhaps after dropout. No backward
  /// then needs that product's value, and a repeated forward need not compute it.
  virtual bool ends_in_sum() const { return false; }
  /// Whether a repeated forward would compute otherwise, because the first one changed buffers that it also reads.
  /// Batch-norm's statistics are not among them: in training they are only written.
  virtual bool reads_what_it_changes() const { return false; }
};

/// A unit around another one. Derived classes only override forward().
class WrappedUnit : public Unit {
 public:
  explicit WrappedUnit(std::unique_ptr<Unit> inner) : inner_(std::move(inner)) {}
  std::string name() const override { return inner_->name(); }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    return inner_->forward(input, context);
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    return inner_->shape_after(input, flops);
  }
  bool ends_in_sum() const override { return inner_->ends_in_sum(); }
  bool reads_what_it_changes() const override { return inner_->reads_what_it_changes(); }

 protected:
  std::unique_ptr<Unit> inner_;
};

}  // namespace trainopt
