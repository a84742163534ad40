#include "train/optimizer/parameter_settings.h"

#include "model/chosen_parameters.h"
#include "model/model.h"
#include "train/optimizer/optimizer.h"
#include "train/optimizer/update_rules.h"

#include <cmath>
#include <set>

namespace trainopt {
namespace {

using Settings = std::map<std::string, ParameterSettings>;

/// own ÷ common; of equal numbers 1, even of zeros.
double ratio(double own, double common) { return own == common ? 1 : own / common; }

/// Multiplies the rate by `decay` once for each unit with parameters after the parameter's own. Source: Bao et al.,
/// "BEiT" (2022); timm's param_groups_layer_decay().
void apply_layer_decay(double decay, const Model& model, Settings& settings) {
  if (decay == 1) return;
  std::set<std::string> trained;
  for (const auto& [name, parameter] : model.parameters()) trained.insert(name);
  int64_t after = 0;
  for (size_t unit = model.units().size(); unit-- > 0;) {
    bool has_parameters = false;
    for (const auto& [name, tensor] : model.unit_state(unit)) {
      if (!trained.contains(name)) continue;
      has_parameters = true;
      settings.at(name).rate *= std::pow(decay, after);
    }
    after += has_parameters;
  }
}

void apply_groups(const std::vector<ParameterGroup>& groups, double learning_rate, const Model& model,
                  Settings& settings) {
  std::map<std::string, size_t> group_of;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string key = fmt::format("optimizer.groups[{}].parameters", i);
    for (const std::string& name : chosen_parameters(model, groups[i].parameters, key)) {
      if (const auto [found, is_new] = group_of.emplace(name, i); !is_new)
        throw UserError(fmt::format("{}: group {} has this parameter already: {}", key, found->second, name));
      ParameterSettings& own = settings.at(name);
      if (groups[i].lr) own.rate = ratio(*groups[i].lr, learning_rate);
      if (groups[i].weight_decay) own.weight_decay = *groups[i].weight_decay;
    }
  }
}

/// Muon's matrices; everything else has AdamW's learning rate.
void apply_muon(const MuonConfig& config, const Model& model, Settings& settings) {
  const std::set<std::string> adamw = chosen_parameters(model, config.adamw_for, "optimizer.adamw_for");
  const std::vector<ParameterKind> kinds = model.parameter_kinds();
  const NamedTensors parameters = model.parameters();
  bool any = false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    ParameterSettings& own = settings.at(name);
    own.orthogonal = parameter.dim() >= 2 && kinds[i] != ParameterKind::embedding && !adamw.contains(name);
    any = any || own.orthogonal;
    if (!own.orthogonal && config.adamw_lr) own.rate = ratio(*config.adamw_lr, config.lr);
  }
  if (!any)
    throw UserError("optimizer.name: muon updates matrices, and adamw_for leaves it none; use adamw for all: muon");
}

}  // namespace

Settings parameter_settings(const OptimizerConfig& config, const Model& model) {
  const CommonOptimizerConfig& common = common_of(config);
  const double weight_decay = std::visit([](const auto& c) { return c.weight_decay; }, config);
  Settings settings;
  for (const auto& [name, parameter] : model.parameters()) settings[name].weight_decay = weight_decay;
  for (const std::string& name : chosen_parameters(model, common.no_decay, "optimizer.no_decay"))
    settings.at(name).weight_decay = 0;
  if (const auto* muon = std::get_if<MuonConfig>(&config)) apply_muon(*muon, model, settings);
  apply_groups(common.groups, base_learning_rate(config), model, settings);
  apply_layer_decay(common.layer_decay, model, settings);
  return settings;
}

double states_per_value(const OptimizerConfig& config, const Model& model) {
  const auto rule = make_update_rule(config, at::empty({}, at::kMeta));
  const Settings settings = parameter_settings(config, model);
  double values = 0, states = 0;
  for (const auto& [name, parameter] : model.parameters()) {
    const auto count = static_cast<double>(parameter.numel());
    values += count;
    for (const std::string& state : rule->state()) states += rule->keeps(state, settings.at(name)) ? count : 0;
  }
  return states / values;
}

}  // namespace trainopt
