// A residual network small enough to train hundreds of times per test: a stem, two blocks, of which the second has a
// convolution in its shortcut, and a head. Names are as in torchvision's ResNets.
#pragma once

#include "model/model.h"
#include "support/plans.h"

namespace trainopt::test {

class SmallStem : public Unit {
 public:
  explicit SmallStem(Builder& builder)
      : conv1_(builder, "conv1", {3, 8, 3, 1, 1}), bn1_(builder, "bn1", 8), operations_(builder.operations()) {}
  std::string name() const override { return "stem"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    return operations_->batch_norm->batch_norm_relu(conv1_.forward(input), bn1_, context);
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    return conv1_.shape_after(input, flops);
  }

 private:
  Conv2d conv1_;
  BatchNorm2d bn1_;
  std::shared_ptr<const Operations> operations_;
};

class SmallBlock : public Unit {
 public:
  SmallBlock(Builder& builder, std::string name, int64_t in, int64_t out)
      : name_(std::move(name)),
        conv1_(builder, name_ + ".conv1", {in, out, 3, in == out ? 1 : 2, 1}),
        bn1_(builder, name_ + ".bn1", out),
        conv2_(builder, name_ + ".conv2", {out, out, 3, 1, 1}),
        bn2_(builder, name_ + ".bn2", out),
        operations_(builder.operations()) {
    if (in == out) return;
    shortcut_.emplace(builder, name_ + ".downsample.0", Conv2d::Shape{in, out, 1, 2});
    shortcut_norm_.emplace(builder, name_ + ".downsample.1", out);
  }
  std::string name() const override { return name_; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const auto& norm = *operations_->batch_norm;
    const at::Tensor x = conv2_.forward(norm.batch_norm_relu(conv1_.forward(input), bn1_, context));
    const at::Tensor shortcut =
        shortcut_ ? norm.batch_norm(shortcut_->forward(input), *shortcut_norm_, context) : input;
    return norm.batch_norm_add_relu(x, bn2_, shortcut, context);
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    return conv2_.shape_after(conv1_.shape_after(input, flops), flops);
  }

 private:
  std::string name_;
  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  BatchNorm2d bn2_;
  std::optional<Conv2d> shortcut_;
  std::optional<BatchNorm2d> shortcut_norm_;
  std::shared_ptr<const Operations> operations_;
};

class SmallHead : public Unit {
 public:
  explicit SmallHead(Builder& builder) : fc_(builder, "fc", 16, 10), operations_(builder.operations()) {}
  std::string name() const override { return "head"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    return operations_->head->head(input, fc_, context);
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    return fc_.shape_after({input[0]}, flops);
  }

 private:
  Linear fc_;
  std::shared_ptr<const Operations> operations_;
};

inline Model small_resnet(const ModelConfig&, const InputShape& input, at::Device device, uint64_t seed,
                          const UnitRange& held) {
  Builder builder(device, seed, held);
  builder.add<SmallStem>();
  builder.add<SmallBlock>("layer1.0", 8, 8);
  builder.add<SmallBlock>("layer2.0", 8, 16);
  builder.add<SmallHead>();
  return {std::move(builder), {input.channels, input.height, input.width}};
}

/// A plan with small_plan()'s data, the small residual network and the given optimizer, without a last step.
inline Plan small_resnet_plan(const OptimizerConfig& optimizer, uint64_t seed) {
  Plan plan(Machine{.cpu = "test", .cores = 2}, at::kCPU, optimizer);
  const Plan small = small_plan(1, seed);
  plan.seed = seed;
  plan.data = small.data;
  plan.data.batch_size = 16;
  plan.model.input = small.model.input;
  plan.model.make = small_resnet;
  plan.model.describe(plan.model.shapes());
  return plan;
}

}  // namespace trainopt::test
