#include "optimizations/fused_optimizer/fused_optimizer.h"

#include "base/counted.h"
#include "device/tensor.h"
#include "kernels/meta.h"
#include "model/model.h"
#include "optimizations/fused_optimizer/deferred_gradients.h"
#include "optimizations/fused_optimizer/receipt.h"
#include "optimizations/option_checks.h"
#include "train/parameter_store.h"
#include "train/plan.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <map>

namespace trainopt::fused_optimizer {
namespace {

using kernels::update::AdamRule;
using kernels::update::Settings;
using kernels::update::SgdRule;
using kernels::update::Tensors;

/// 16-bit copies of parameters, which the model's layers use during this object's lifetime.
class WeightCopies {
 public:
  explicit WeightCopies(const BuildContext& context) : parameters_(context.parameters->parameters()) {
    const at::ScalarType type = context.plan.tensor_format.compute_type;
    if (type == at::kFloat || context.model == nullptr || !context.parameters->is_local()) return;
    layer_copies_ = context.model->weight_copies();
    for (size_t i = 0; i < layer_copies_.size(); ++i) {
      copies_.push_back(layer_copies_[i] ? at::empty_like(parameters_[i].second.detach(), type) : at::Tensor());
      if (layer_copies_[i]) *layer_copies_[i] = copies_[i];
    }
    refresh();
  }
  ~WeightCopies() {
    for (size_t i = 0; i < layer_copies_.size(); ++i)
      if (layer_copies_[i] && layer_copies_[i]->is_same(copies_[i])) layer_copies_[i]->reset();
  }
  WeightCopies(const WeightCopies&) = delete;
  WeightCopies& operator=(const WeightCopies&) = delete;

  /// Call after something else has written to the parameters.
  void refresh() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < copies_.size(); ++i)
      if (copies_[i].defined()) copies_[i].copy_(parameters_[i].second);
  }
  /// One per parameter, undefined for those without a copy; empty if there are no copies.
  const std::vector<at::Tensor>& tensors() const { return copies_; }
  int64_t count() const {
    return std::count_if(copies_.begin(), copies_.end(), [](const at::Tensor& copy) { return copy.defined(); });
  }
  int64_t bytes() const {
    int64_t bytes = 0;
    for (const auto& copy : copies_)
      if (copy.defined()) bytes += static_cast<int64_t>(copy.nbytes());
    return bytes;
  }

 private:
  const NamedTensors& parameters_;
  std::vector<WeightCopy> layer_copies_;
  std::vector<at::Tensor> copies_;
};

class FusedOptimizer : public Optimizer {
 public:
  FusedOptimizer(const UpdateKernels& kernels, double learning_rate, const BuildContext& context)
      : kernels_(kernels),
        copies_(context),
        learning_rate_(at::empty(
            {}, context.parameters->parameters().front().second.options().dtype(at::kFloat).requires_grad(false))) {
    set_learning_rate(learning_rate);
    const Plan& plan = context.plan;
    const auto decays = weight_decays(plan.optimizer_config, *context.parameters, plan.without_decay);
    for (size_t i = 0; i < decays.size(); ++i) groups_[static_cast<float>(decays[i])].push_back(i);
  }

  std::unique_ptr<Gradients> make_gradients() const final {
    return std::make_unique<DeferredGradients>(kernels_, learning_rate_);
  }

  void load(const ArchiveReader& archive) final {
    load_state(archive);
    copies_.refresh();  // parameters are loaded first
  }
  void parameters_changed() final { copies_.refresh(); }
  int64_t state_bytes() const final { return bytes_of_state() + copies_.bytes(); }

  /// Stored on the device, where recorded steps read it, as float32, which all kernels expect.
  void set_learning_rate(double learning_rate) override {
    if (std::exchange(device_rate_, learning_rate) != learning_rate) learning_rate_.fill_(learning_rate);
  }

  void update(Gradients& gradients, const at::Tensor& skip_update) override {
    const at::NoGradGuard no_grad;
    RECORD_FUNCTION("trainopt::fused_optimizer",
                    std::vector<c10::IValue>());  // libtorch operations inside count as part of it
    const bool clears = gradients.clears_with_zeros();
    const auto pending = gradients.pending();
    const Settings settings{
        .learning_rate = learning_rate_, .factor = pending.factor, .skip_update = skip_update, .clears = clears};
    int64_t launches = 0, updated = 0;
    for (const auto& [weight_decay, members] : groups_) {
      std::vector<size_t> indices;  // of the group's parameters that have a gradient
      Tensors tensors;
      for (const size_t i : members) {
        if (!gradients.tensors()[i].defined()) continue;
        indices.push_back(i);
        tensors.parameters.push_back(gradients.parameters()[i].second);
        tensors.gradients.push_back(gradients.tensors()[i]);
      }
      if (indices.empty()) continue;
      tensors.copies = chosen(copies_.tensors(), indices);
      launches += launch(tensors, indices, weight_decay, updated == 0, settings);
      updated += static_cast<int64_t>(indices.size());
    }
    if (clears) gradients.mark_cleared();
    post({.tensors = updated,
          .launches = launches,
          .copies = copies_.count(),
          .scaled = pending.scaled,
          .clipped = pending.clipped,
          .cleared = clears});
  }

 protected:
  /// Selects the tensors with these indices from `all`, which has one per parameter or is empty; empty if it is.
  static std::vector<at::Tensor> chosen(const std::vector<at::Tensor>& all, const std::vector<size_t>& indices) {
    std::vector<at::Tensor> tensors;
    if (all.empty()) return tensors;
    tensors.reserve(indices.size());
    for (const size_t index : indices) tensors.push_back(all[index]);
    return tensors;
  }

  const UpdateKernels& kernels_;

 private:
  /// Adds the update rule's state to `tensors` and runs the update; returns the number of launches. `first`: no call
  /// came before in this step.
  virtual int64_t launch(Tensors& tensors, const std::vector<size_t>& indices, float weight_decay, bool first,
                         const Settings& settings) = 0;
  virtual void load_state(const ArchiveReader& archive) = 0;
  virtual int64_t bytes_of_state() const = 0;

  WeightCopies copies_;
  std::map<float, std::vector<size_t>> groups_;  ///< indices of the parameters by weight decay
  std::optional<double> device_rate_;
  at::Tensor learning_rate_;
};

class FusedSgd : public FusedOptimizer {
 public:
  FusedSgd(const UpdateKernels& kernels, const SgdConfig& config, const BuildContext& context)
      : FusedOptimizer(kernels, config.lr, context),
        rule_{.momentum = static_cast<float>(config.momentum), .nesterov = config.nesterov},
        momentum_(momentum_of(config, *context.parameters)) {}

  void set_momentum(double momentum) override { rule_.momentum = static_cast<float>(momentum); }
  void save(ArchiveWriter& archive) const override {
    if (momentum_) momentum_->save(archive);
  }
  void load_state(const ArchiveReader& archive) override {
    if (momentum_) momentum_->load(archive);
  }
  int64_t bytes_of_state() const override { return momentum_ ? momentum_->bytes() : 0; }

 private:
  int64_t launch(Tensors& tensors, const std::vector<size_t>& indices, float weight_decay, bool,
                 const Settings& settings) override {
    if (momentum_) tensors.first = chosen(momentum_->tensors(), indices);
    SgdRule rule = rule_;
    rule.weight_decay = weight_decay;
    return kernels_.sgd(rule, tensors, settings);
  }

  SgdRule rule_;
  std::optional<ParameterState> momentum_;
};

class FusedAdam : public FusedOptimizer {
 public:
  FusedAdam(const UpdateKernels& kernels, const AdamConfig& config, bool decoupled, const BuildContext& context)
      : FusedOptimizer(kernels, config.lr, context),
        rule_{.beta1 = config.betas[0],
              .beta2 = config.betas[1],
              .epsilon = static_cast<float>(config.eps),
              .decoupled = decoupled},
        first_("exp_avg", *context.parameters),
        second_("exp_avg_sq", *context.parameters),
        updates_(at::zeros(
            {}, context.parameters->parameters().front().second.options().dtype(at::kDouble).requires_grad(false))) {}

  void set_momentum(double momentum) override { rule_.beta1 = momentum; }
  void save(ArchiveWriter& archive) const override {
    archive.tensor("optimizer.updates", updates_);
    first_.save(archive);
    second_.save(archive);
  }
  void load_state(const ArchiveReader& archive) override {
    archive.tensor("optimizer.updates", updates_);
    first_.load(archive);
    second_.load(archive);
  }
  int64_t bytes_of_state() const override { return first_.bytes() + second_.bytes(); }

 private:
  int64_t launch(Tensors& tensors, const std::vector<size_t>& indices, float weight_decay, bool first,
                 const Settings& settings) override {
    tensors.first = chosen(first_.tensors(), indices);
    tensors.second = chosen(second_.tensors(), indices);
    AdamRule rule = rule_;
    rule.weight_decay = weight_decay;
    rule.counts_update = first;
    return kernels_.adam(rule, updates_, tensors, settings);
  }

  AdamRule rule_;
  ParameterState first_, second_;
  at::Tensor updates_;
};

bool has_kernels(const OptimizerConfig& config) {
  return std::holds_alternative<SgdConfig>(config) || std::holds_alternative<AdamConfig>(config) ||
         std::holds_alternative<AdamWConfig>(config);
}

/// Does not query the device, because plans are also made for other machines. Null in builds without such kernels.
const UpdateKernels* kernels_for(at::Device device) {
  using namespace kernels::update;
  if (device.is_meta()) return &meta_kernels();
  return device.is_cpu() ? &cpu_kernels() : cuda_kernels();
}

}  // namespace

std::unique_ptr<Optimizer> make_fused_optimizer(const UpdateKernels& kernels, const BuildContext& context) {
  const OptimizerConfig& config = context.plan.optimizer_config;
  if (const auto* sgd = std::get_if<SgdConfig>(&config)) return std::make_unique<FusedSgd>(kernels, *sgd, context);
  if (const auto* adam = std::get_if<AdamConfig>(&config))
    return std::make_unique<FusedAdam>(kernels, *adam, false, context);
  return std::make_unique<FusedAdam>(kernels, std::get<AdamWConfig>(config), true, context);
}

void check(OptionChecks& checks) {
  checks.learning_rate_on_device = true;
  if (checks.bfloat16_weights)
    checks.refuse("optimizations.fused_optimizer",
                  "its kernels update float32 weights only; remove it or optimizations.precision");
}

Outcome apply(Plan& plan) {
  if (!has_kernels(plan.optimizer_config)) return Outcome::none("it has kernels for sgd, adam and adamw only");
  if (!plan.model.in_bfloat16.empty()) return Outcome::none("its kernels update float32 weights only");
  if (kernels_for(plan.device) == nullptr)
    return Outcome::none("this build has no GPU kernels: it was configured with TRAINOPT_CUDA=OFF");
  plan.optimizer.fill(
      "fused_optimizer", describe_optimizer(plan.optimizer_config) + ", one fused update of all parameters",
      [](const BuildContext& context) { return make_fused_optimizer(*kernels_for(context.device), context); });
  plan.learning_rate_on_device = true;
  return Outcome::applied("one pass updates all parameters and also unscales, clips and zeroes gradients as needed",
                          receipt);
}

}  // namespace trainopt::fused_optimizer
