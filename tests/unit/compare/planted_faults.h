// Changes to a training: faults that must be caught, and correct changes that must not be.
#pragma once

#include "base/philox.h"
#include "device/tensor.h"
#include "optimizations/amp/amp.h"
#include "optimizations/channels_last/channels_last.h"
#include "optimizations/fused_kernels/fused_kernels.h"
#include "optimizations/fused_optimizer/fused_optimizer.h"
#include "optimizations/tf32/tf32.h"
#include "optimizations/winograd/winograd.h"
#include "support/small_resnet.h"

namespace trainopt::test {

struct Change {
  std::string name;
  std::function<void(Plan&)> make;
};

/// Precision that modifies the gradients once they are complete.
class EditedGradients : public Precision {
 public:
  using Edit = std::function<void(const std::string& name, at::Tensor& gradient)>;
  EditedGradients(std::unique_ptr<Precision> inner, Edit edit) : inner_(std::move(inner)), edit_(std::move(edit)) {}
  AutocastGuard autocast() override { return inner_->autocast(); }
  void backward(const at::Tensor& loss) override { inner_->backward(loss); }
  at::Tensor unscale(Gradients& gradients) override {
    const at::Tensor overflow = inner_->unscale(gradients);
    for (size_t i = 0; i < gradients.tensors().size(); ++i) {
      at::Tensor gradient = gradients.tensors()[i];
      edit_(gradients.parameters()[i].first, gradient);
    }
    return overflow;
  }
  void update(const at::Tensor& overflow, const at::Tensor& rolled_back) override {
    inner_->update(overflow, rolled_back);
  }

 private:
  std::unique_ptr<Precision> inner_;
  Edit edit_;
};

inline Change edited_gradients(std::string name, EditedGradients::Edit edit) {
  return {std::move(name), [edit](Plan& plan) {
            plan.precision.wrap("fault", "", [edit](const BuildContext&, std::unique_ptr<Precision> inner) {
              return std::make_unique<EditedGradients>(std::move(inner), edit);
            });
          }};
}

/// Modifies the model at construction and after every update.
class AfterUpdate : public Optimizer {
 public:
  using Then = std::function<void(Model&)>;
  AfterUpdate(std::unique_ptr<Optimizer> inner, Model& model, Then then)
      : inner_(std::move(inner)), model_(model), then_(std::move(then)) {
    then_(model_);
  }
  void set_learning_rate(double learning_rate) override { inner_->set_learning_rate(learning_rate); }
  void set_momentum(double momentum) override { inner_->set_momentum(momentum); }
  void save(ArchiveWriter& archive) const override { inner_->save(archive); }
  void load(const ArchiveReader& archive) override { inner_->load(archive); }
  int64_t state_bytes() const override { return inner_->state_bytes(); }
  void parameters_changed() override { inner_->parameters_changed(); }

 private:
  void update(Gradients& gradients, const at::Tensor& skip_update) override {
    inner_->step(gradients, skip_update);
    const at::NoGradGuard no_grad;
    then_(model_);
  }

  std::unique_ptr<Optimizer> inner_;
  Model& model_;
  Then then_;
};

inline Change after_update(std::string name, AfterUpdate::Then then) {
  return {std::move(name), [then](Plan& plan) {
            plan.optimizer.wrap("fault", "", [then](const BuildContext& context, std::unique_ptr<Optimizer> inner) {
              const at::NoGradGuard no_grad;
              return std::make_unique<AfterUpdate>(std::move(inner), *context.model, then);
            });
          }};
}

/// Modifies copies of the batches on their way to the training.
class ChangedBatches : public BatchSource {
 public:
  using Edit = std::function<void(Batch&)>;
  ChangedBatches(std::unique_ptr<BatchSource> inner, Edit edit) : inner_(std::move(inner)), edit_(std::move(edit)) {}
  Batch next() override {
    Batch batch = inner_->next();
    batch.input = batch.input.clone();
    batch.target = batch.target.clone();
    edit_(batch);
    return batch;
  }
  void start() override { inner_->start(); }
  void pause() override { inner_->pause(); }
  BatchSourceStats take_stats() override { return inner_->take_stats(); }
  const BatchSchedule& schedule() const override { return inner_->schedule(); }

 private:
  std::unique_ptr<BatchSource> inner_;
  Edit edit_;
};

inline Change edited(std::string name, ChangedBatches::Edit edit) {
  return {std::move(name), [edit](Plan& plan) {
            plan.data.wrap_batches = [edit,
                                      wrap_batches = plan.data.wrap_batches](std::unique_ptr<BatchSource> batches) {
              if (wrap_batches) batches = wrap_batches(std::move(batches));
              return std::make_unique<ChangedBatches>(std::move(batches), edit);
            };
          }};
}

/// Changes the options of either optimizer in the same way: `edit(lr, momentum or beta1, decay)`.
inline Change tuned(std::string name, std::function<void(double&, double&, double&)> edit) {
  return {std::move(name), [edit](Plan& plan) {
            if (auto* sgd = std::get_if<SgdConfig>(&plan.optimizer_config))
              edit(sgd->lr, sgd->momentum, sgd->weight_decay);
            else if (auto* adamw = std::get_if<AdamWConfig>(&plan.optimizer_config))
              edit(adamw->lr, adamw->betas[0], adamw->weight_decay);
          }};
}

inline Change scaled_gradients(double factor) {
  return edited_gradients(fmt::format("gradients × {}", factor),
                          [factor](const std::string&, at::Tensor& g) { g.mul_(factor); });
}
inline Change scaled_rate(double factor) {
  return tuned(fmt::format("rate {:+.0f} %", 100 * (factor - 1)),
               [factor](double& lr, double&, double&) { lr *= factor; });
}

/// Faults that must be caught.
inline std::vector<Change> faults() {
  return {
      edited_gradients("the stem's gradient is zero",
                       [](const std::string& name, at::Tensor& g) {
                         if (name == "conv1.weight") g.zero_();
                       }),
      edited_gradients("all batch-norm and bias gradients are zero",
                       [](const std::string&, at::Tensor& g) {
                         if (g.dim() == 1) g.zero_();
                       }),
      edited_gradients("one block's gradient is negated",
                       [](const std::string& name, at::Tensor& g) {
                         if (name.starts_with("layer2.0.")) g.neg_();
                       }),
      scaled_gradients(1.1),
      scaled_gradients(0.9),
      edited_gradients("one tensor's gradient × 1.1",
                       [](const std::string& name, at::Tensor& g) {
                         if (name == "layer1.0.conv2.weight") g.mul_(1.1);
                       }),
      after_update("bfloat16 weights without a master copy",
                   [](Model& model) {
                     for (auto& [name, parameter] : model.parameters()) parameter.copy_(parameter.to(at::kBFloat16));
                   }),
      tuned("weight decay is ignored", [](double&, double&, double& decay) { decay = 0; }),
      scaled_rate(1.1),
      edited("one label of a batch is wrong",
             [](Batch& batch) { batch.target[0] = (batch.target[0].item<int64_t>() + 1) % 10; }),
      edited("one sample of a batch is duplicated",
             [](Batch& batch) {
               batch.input[0].copy_(batch.input[1]);
               batch.target[0].copy_(batch.target[1]);
             }),
      after_update("running statistics are frozen",
                   [](Model& model) {
                     for (auto& [name, buffer] : model.buffers())
                       if (name.ends_with("running_mean"))
                         buffer.zero_();
                       else if (name.ends_with("running_var"))
                         buffer.fill_(1);
                   }),
  };
}

/// Faults below the claimed sensitivity: for the table only.
inline std::vector<Change> small_faults() {
  return {scaled_rate(1.01),
          scaled_rate(1.02),
          scaled_rate(1.03),
          scaled_rate(1.05),
          scaled_gradients(1.02),
          scaled_gradients(1.05),
          tuned("momentum 10 % off", [](double&, double& momentum, double&) { momentum *= 0.9; })};
}

/// Another random stream for the model (dropout).
inline Change other_dropout() {
  return {"another dropout stream", [](Plan& plan) {
            plan.task.wrap("test", "", [](const BuildContext& context, std::unique_ptr<Task> inner) {
              at::Generator generator = *context.generator;  // a handle
              generator.set_current_seed(context.plan.seed + 1000);
              return inner;
            });
          }};
}

/// Random crops with a padding of one eighth and flips, as usual for CIFAR-10, from a random stream of their own.
inline Change crops(uint64_t stream) {
  const auto draws = std::make_shared<PhiloxStream>(stream);
  return edited("another crop stream", [draws](Batch& batch) {
    const int64_t side = batch.input.size(2), padding = side / 8;
    const at::Tensor padded = at::constant_pad_nd(batch.input, {padding, padding, padding, padding});
    for (int64_t i = 0; i < batch.items; ++i) {
      const auto offset = [&] {
        return static_cast<int64_t>(draws->next_below(static_cast<uint64_t>(2 * padding + 1)));
      };
      at::Tensor crop = padded[i].narrow(1, offset(), side).narrow(2, offset(), side);
      if (draws->next_below(2) == 1) crop = crop.flip(2);
      batch.input[i].copy_(crop);
    }
  });
}

/// Changes that must agree.
inline std::vector<Change> right_changes() {
  const auto all = [](Plan& plan) {
    channels_last::apply(plan);
    fused_kernels::apply(plan);
    amp::apply(plan, {});
    fused_optimizer::apply(plan);
  };
  return {{"amp", [](Plan& plan) { amp::apply(plan, {}); }},
          {"channels_last", [](Plan& plan) { channels_last::apply(plan); }},
          {"fused_kernels", [](Plan& plan) { fused_kernels::apply(plan); }},
          {"fused_optimizer", [](Plan& plan) { fused_optimizer::apply(plan); }},
          {"winograd", [](Plan& plan) { winograd::apply(plan, {}); }},
          {"tf32", [](Plan& plan) { tf32::apply(plan); }},
          {"all of these at once", all}};
}

}  // namespace trainopt::test
