#include "train/optimizer.h"

#include "train/parameter_store.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

namespace trainopt {
namespace {

/// Writes `updated` into `target`, unless the step overflowed.
void commit(at::Tensor& target, const at::Tensor& updated, const at::Tensor& overflow) {
  target.copy_(overflow.defined() ? at::where(overflow > 0, target, updated) : updated);
}

class LoopSgd : public Optimizer {
 public:
  LoopSgd(const SgdConfig& config, const ParameterStore& store)
      : config_(config), learning_rate_(config.lr), momentum_(momentum_of(config, store)) {}

  void set_learning_rate(double learning_rate) override { learning_rate_ = learning_rate; }

  void update(ParameterStore& store, const at::Tensor& overflow) override {
    const at::NoGradGuard no_grad;
    const auto gradients = store.gradients();
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      at::Tensor parameter = store.parameters()[i].second;
      at::Tensor gradient = gradients[i];
      if (config_.weight_decay != 0) gradient = gradient + config_.weight_decay * parameter;
      if (momentum_) {
        at::Tensor& kept = (*momentum_)[i];
        const at::Tensor momentum = config_.momentum * kept + gradient;
        commit(kept, momentum, overflow);
        gradient = config_.nesterov ? gradient + config_.momentum * momentum : momentum;
      }
      commit(parameter, parameter - learning_rate_ * gradient, overflow);
    }
  }

  void save(ArchiveWriter& archive) const override {
    if (momentum_) momentum_->save(archive);
  }
  void load(const ArchiveReader& archive) override {
    if (momentum_) momentum_->load(archive);
  }
  int64_t state_bytes() const override { return momentum_ ? momentum_->bytes() : 0; }

 private:
  SgdConfig config_;
  double learning_rate_;
  std::optional<ParameterState> momentum_;
};

/// Adam (Kingma & Ba 2015) and, with `decoupled`, AdamW (Loshchilov & Hutter 2019).
class LoopAdam : public Optimizer {
 public:
  LoopAdam(const AdamConfig& config, bool decoupled, const ParameterStore& store)
      : config_(config), decoupled_(decoupled), learning_rate_(config.lr), first_("exp_avg", store), second_("exp_avg_sq", store),
        updates_(at::zeros({}, store.parameters().front().second.options().dtype(at::kDouble).requires_grad(false))) {}

  void set_learning_rate(double learning_rate) override { learning_rate_ = learning_rate; }

  void update(ParameterStore& store, const at::Tensor& overflow) override {
    const at::NoGradGuard no_grad;
    const auto [beta1, beta2] = config_.betas;
    // Counted on the device, since only the device knows whether this step counts.
    commit(updates_, updates_ + 1, overflow);
    const at::Tensor bias1 = 1 - at::pow(beta1, updates_), bias2_root = (1 - at::pow(beta2, updates_)).sqrt();
    const auto gradients = store.gradients();
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      at::Tensor parameter = store.parameters()[i].second;
      at::Tensor gradient = gradients[i], start = parameter;
      if (config_.weight_decay != 0) {
        if (decoupled_)
          start = parameter * (1 - learning_rate_ * config_.weight_decay);
        else
          gradient = gradient + config_.weight_decay * parameter;
      }
      const at::Tensor first = at::lerp(first_[i], gradient, 1 - beta1);
      const at::Tensor second = beta2 * second_[i] + (1 - beta2) * gradient * gradient;
      const at::Tensor denominator = second.sqrt() / bias2_root + config_.eps;
      commit(parameter, start - (learning_rate_ / bias1) * (first / denominator), overflow);
      commit(first_[i], first, overflow);
      commit(second_[i], second, overflow);
    }
  }

  void save(ArchiveWriter& archive) const override {
    archive.tensor("optimizer.updates", updates_);
    first_.save(archive);
    second_.save(archive);
  }
  void load(const ArchiveReader& archive) override {
    archive.tensor("optimizer.updates", updates_);
    first_.load(archive);
    second_.load(archive);
  }
  int64_t state_bytes() const override { return first_.bytes() + second_.bytes(); }

 private:
  AdamConfig config_;
  bool decoupled_;
  double learning_rate_;
  ParameterState first_, second_;
  at::Tensor updates_;
};

}  // namespace

ParameterState::ParameterState(std::string name, const ParameterStore& store) : name_(std::move(name)), store_(store) {
  for (const auto& [parameter_name, parameter] : store.parameters()) tensors_.push_back(at::zeros_like(parameter.detach()));
}

std::optional<ParameterState> momentum_of(const SgdConfig& config, const ParameterStore& store) {
  if (config.momentum == 0) return std::nullopt;
  return ParameterState("momentum", store);
}

int64_t ParameterState::bytes() const {
  int64_t bytes = 0;
  for (const auto& tensor : tensors_) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

void ParameterState::save(ArchiveWriter& archive) const { store_.save(archive, prefix(), tensors_); }

void ParameterState::load(const ArchiveReader& archive) { store_.load(archive, prefix(), tensors_); }

void Optimizer::step(ParameterStore& parameters, const at::Tensor& overflow) {
  RECORD_USER_SCOPE(kOptimizerLabel);
  update(parameters, overflow);
}

std::string describe_optimizer(const OptimizerConfig& config) {
  struct {
    std::string operator()(const SgdConfig& c) const {
      return fmt::format("SGD, lr {}, momentum {}{}, weight decay {}", c.lr, c.momentum, c.nesterov ? " (Nesterov)" : "", c.weight_decay);
    }
    std::string operator()(const AdamConfig& c) const {
      return fmt::format("Adam, lr {}, betas {} {}, eps {}, weight decay {}", c.lr, c.betas[0], c.betas[1], c.eps, c.weight_decay);
    }
    std::string operator()(const AdamWConfig& c) const {
      return fmt::format("AdamW, lr {}, betas {} {}, eps {}, weight decay {}", c.lr, c.betas[0], c.betas[1], c.eps, c.weight_decay);
    }
  } text;
  return std::visit(text, config);
}

double base_learning_rate(const OptimizerConfig& config) {
  return std::visit([](const auto& c) { return c.lr; }, config);
}

std::unique_ptr<Optimizer> make_loop_optimizer(const OptimizerConfig& config, const ParameterStore& parameters) {
  if (const auto* sgd = std::get_if<SgdConfig>(&config)) return std::make_unique<LoopSgd>(*sgd, parameters);
  if (const auto* adam = std::get_if<AdamConfig>(&config)) return std::make_unique<LoopAdam>(*adam, false, parameters);
  return std::make_unique<LoopAdam>(std::get<AdamWConfig>(config), true, parameters);
}

}  // namespace trainopt
