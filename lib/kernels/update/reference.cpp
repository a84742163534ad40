#include "kernels/update/update.h"

#include "device/tensor.h"

#include <ATen/core/grad_mode.h>

namespace trainopt::kernels::update {
namespace {

class ReferenceUpdateKernels : public UpdateKernels {
 public:
  int64_t sgd(const SgdRule& rule, const Tensors& tensors, const Settings& settings) const override {
    return each(
        tensors, settings,
        [&](at::Tensor& parameter, at::Tensor gradient, at::Tensor& momentum, at::Tensor&, const at::Tensor& ratio) {
          gradient = gradient + rule.weight_decay * parameter;
          if (ratio.defined()) gradient = gradient * ratio;
          if (momentum.defined()) {
            momentum = rule.momentum * momentum + gradient;
            gradient = rule.nesterov ? gradient + rule.momentum * momentum : momentum;
          }
          parameter = parameter - settings.learning_rate * gradient;
        });
  }

  int64_t adam(const AdamRule& rule, const at::Tensor& updates, const Tensors& tensors,
               const Settings& settings) const override {
    const at::NoGradGuard no_grad;
    if (rule.counts_update) count(updates, settings);
    const at::Tensor bias1 = (1 - at::pow(rule.beta1, updates)).to(at::kFloat),
                     bias2_root = (1 - at::pow(rule.beta2, updates)).sqrt().to(at::kFloat);
    return each(
        tensors, settings,
        [&](at::Tensor& parameter, at::Tensor gradient, at::Tensor& first, at::Tensor& second, const at::Tensor&) {
          if (!rule.decoupled) gradient = gradient + rule.weight_decay * parameter;
          first = first + (1 - rule.beta1) * (gradient - first);
          second = rule.beta2 * second + (1 - rule.beta2) * gradient * gradient;
          if (rule.decoupled) parameter = parameter * (1 - settings.learning_rate * rule.weight_decay);
          parameter = parameter - settings.learning_rate / bias1 * first / (second.sqrt() / bias2_root + rule.epsilon);
        });
  }

  int64_t lion(const LionRule& rule, const Tensors& tensors, const Settings& settings) const override {
    return each(
        tensors, settings,
        [&](at::Tensor& parameter, const at::Tensor& gradient, at::Tensor& first, at::Tensor&, const at::Tensor&) {
          const at::Tensor sign = (first + (1 - rule.beta1) * (gradient - first)).sign();
          first = first + (1 - rule.beta2) * (gradient - first);
          parameter = parameter * (1 - settings.learning_rate * rule.weight_decay) - settings.learning_rate * sign;
        });
  }

  int64_t norms(const Tensors& tensors, const Settings& settings, const at::Tensor& squares) const override {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < tensors.parameters.size(); ++i)
      write_squares(squares[tensors.rows[i]], tensors.parameters[i], scaled(tensors.gradients[i], settings));
    return static_cast<int64_t>(tensors.parameters.size());
  }

  int64_t lamb_moments(const LambRule& rule, const at::Tensor& updates, const Tensors& tensors,
                       const Settings& settings, const at::Tensor& squares) const override {
    const at::NoGradGuard no_grad;
    if (rule.counts_update) count(updates, settings);
    Settings no_clearing = settings;
    no_clearing.clears = false;
    Tensors without_copies = tensors;
    without_copies.copies.clear();
    each(without_copies, no_clearing,
         [&](at::Tensor&, const at::Tensor& gradient, at::Tensor& first, at::Tensor& second, const at::Tensor&) {
           first = first + (1 - rule.beta1) * (gradient - first);
           second = rule.beta2 * second + (1 - rule.beta2) * gradient * gradient;
         });
    for (size_t i = 0; i < tensors.parameters.size(); ++i)
      write_squares(squares[tensors.rows[i]], tensors.parameters[i],
                    lamb_update(rule, updates, tensors.parameters[i], tensors.first[i], tensors.second[i]));
    return static_cast<int64_t>(tensors.parameters.size());
  }

  int64_t lamb(const LambRule& rule, const at::Tensor& updates, const Tensors& tensors,
               const Settings& settings) const override {
    return each(
        tensors, settings,
        [&](at::Tensor& parameter, const at::Tensor&, at::Tensor& first, at::Tensor& second, const at::Tensor& ratio) {
          parameter = parameter - settings.learning_rate * ratio * lamb_update(rule, updates, parameter, first, second);
        });
  }

  Measured measure(const std::vector<at::Tensor>& gradients, const at::Tensor& like) const override {
    Measured all{at::zeros({}, like.options().dtype(at::kDouble).requires_grad(false)),
                 at::zeros({}, like.options().dtype(at::kFloat).requires_grad(false))};
    for (const auto& gradient : gradients) {
      all.square_sum += gradient.to(at::kDouble).square().sum();
      all.not_finite = at::maximum(all.not_finite, gradient.isfinite().all().logical_not().to(at::kFloat));
    }
    return all;
  }

 private:
  static void count(const at::Tensor& updates, const Settings& settings) {
    updates.add_(settings.skip_update.defined() ? (settings.skip_update <= 0).to(at::kDouble) : at::ones_like(updates));
  }
  static at::Tensor scaled(const at::Tensor& gradient, const Settings& settings) {
    return settings.factor.defined() ? gradient * settings.factor : gradient;
  }
  static void write_squares(const at::Tensor& row, const at::Tensor& parameter, const at::Tensor& other) {
    row.copy_(at::stack({parameter.to(at::kDouble).square().sum(), other.to(at::kDouble).square().sum()}));
  }
  static at::Tensor lamb_update(const LambRule& rule, const at::Tensor& updates, const at::Tensor& parameter,
                                const at::Tensor& first, const at::Tensor& second) {
    const auto bias = [&](double beta) {
      return rule.bias_correction ? (1 - at::pow(beta, updates)) : at::ones_like(updates);
    };
    return first / bias(rule.beta1).to(at::kFloat) /
               (second.sqrt() / bias(rule.beta2).sqrt().to(at::kFloat) + rule.epsilon) +
           rule.weight_decay * parameter;
  }

  /// Calls rule(parameter, gradient, first, second, ratio) on new values for each parameter; writes them back, with the
  /// copies, unless the update is skipped.
  template <class Rule>
  static int64_t each(const Tensors& tensors, const Settings& settings, const Rule& rule) {
    const at::NoGradGuard no_grad;
    const auto at = [](const std::vector<at::Tensor>& all, size_t i) { return all.empty() ? at::Tensor() : all[i]; };
    const auto write = [&](const at::Tensor& to, const at::Tensor& value) {
      if (to.defined())
        to.copy_(settings.skip_update.defined() ? at::where(settings.skip_update > 0, to, value) : value);
    };
    for (size_t i = 0; i < tensors.parameters.size(); ++i) {
      at::Tensor parameter = tensors.parameters[i].detach(), first = at(tensors.first, i),
                 second = at(tensors.second, i);
      const at::Tensor ratio = settings.ratios.defined() ? settings.ratios[tensors.rows[i]] : at::Tensor();
      rule(parameter, scaled(tensors.gradients[i], settings), first, second, ratio);
      write(tensors.parameters[i].detach(), parameter);
      write(at(tensors.first, i), first);
      write(at(tensors.second, i), second);
      const at::Tensor copy = at(tensors.copies, i);
      if (copy.defined()) write(copy, parameter.to(copy.scalar_type()));
      if (settings.clears) tensors.gradients[i].zero_();
    }
    return static_cast<int64_t>(tensors.parameters.size());
  }
};

}  // namespace

const UpdateKernels& reference_kernels() {
  static const ReferenceUpdateKernels kernels;
  return kernels;
}

}  // namespace trainopt::kernels::update
