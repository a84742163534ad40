#include "train/muon.h"

#include <ATen/ops/addmm.h>

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

/// What the learning rate is multiplied by for a matrix of this size.
double rate_factor(MuonRate rate, double rows, double columns) {
  if (rate == MuonRate::match_rms_adamw) return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(std::max(1.0, rows / columns));
}

AdamWConfig adamw_of(const MuonConfig& config) {
  AdamWConfig adamw;
  adamw.betas = config.adamw_betas;
  adamw.eps = config.adamw_eps;
  return adamw;
}

class MuonRule : public UpdateRule {
 public:
  MuonRule(const MuonConfig& config, const at::Tensor& like)
      : config_(config), adamw_(make_update_rule(adamw_of(config), like)) {}

  std::vector<std::string> state() const override {
    std::vector<std::string> names{kMomentum};
    for (const std::string& name : adamw_->state()) names.push_back(name);
    return names;
  }
  bool keeps(const std::string& state, const ParameterSettings& parameter) const override {
    return (state == kMomentum) == parameter.orthogonal;
  }
  bool decays_weights() const override { return true; }
  void count(const at::Tensor& skip_update) override { adamw_->count(skip_update); }

  at::Tensor direction(const RuleInput& in) const override {
    RuleInput for_adamw = in;
    for_adamw.state.erase(for_adamw.state.begin());
    return adamw_->direction(for_adamw);
  }
  at::Tensor part_of_whole(const RuleInput& in) const override {
    const at::Tensor& momentum = in.state.front();
    commit(momentum, in.skip_update, [&](at::Tensor& m) { m.lerp_(in.gradient, 1 - config_.momentum); });
    return config_.nesterov ? in.gradient.lerp(momentum, config_.momentum) : momentum;
  }
  at::Tensor whole_direction(const at::Tensor& whole) const override {
    const at::Tensor matrix = whole.flatten(1);
    const double factor =
        rate_factor(config_.adjust_lr_fn, static_cast<double>(matrix.size(0)), static_cast<double>(matrix.size(1)));
    return orthogonalized(matrix, config_).to(whole.scalar_type()).mul(factor).view(whole.sizes());
  }

  void set_momentum(double momentum) override { config_.momentum = momentum; }
  void save(ArchiveWriter& archive) const override { adamw_->save(archive); }
  void load(const ArchiveReader& archive) override { adamw_->load(archive); }

 private:
  static constexpr const char* kMomentum = "momentum_buffer";

  MuonConfig config_;
  std::unique_ptr<UpdateRule> adamw_;
};

}  // namespace

at::Tensor orthogonalized(const at::Tensor& matrix, const MuonConfig& config) {
  const auto [a, b, c] = config.ns_coefficients;
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = matrix.to(config.ns_dtype == MuonType::bfloat16 ? at::kBFloat16 : at::kFloat);
  if (is_tall) x = x.t();
  x = x.div(x.norm().clamp_min(config.eps));
  for (int64_t i = 0; i < config.ns_steps; ++i) {
    const at::Tensor gram = x.mm(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a);
  }
  return (is_tall ? x.t() : x).contiguous();
}

std::unique_ptr<UpdateRule> make_muon_rule(const MuonConfig& config, const at::Tensor& like) {
  return std::make_unique<MuonRule>(config, like);
}

}  // namespace trainopt
