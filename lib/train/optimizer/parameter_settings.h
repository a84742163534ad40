// What an optimizer does differently from one parameter to another: `no_decay`, `groups`, `layer_decay`, and Muon's
// choice of matrices.
#pragma once

#include "train/optimizer/optimizer_config.h"

#include <map>

namespace trainopt {

class Model;

struct ParameterSettings {
  double rate = 1;  ///< multiplies the learning rate
  double weight_decay = 0;
  bool orthogonal = false;  ///< a matrix of which Muon orthogonalizes the updates
};

/// By name, of all of the model's parameters. Throws UserError naming the key of the recipe for words that choose no
/// parameter, for a parameter in two groups, and for Muon without matrices.
std::map<std::string, ParameterSettings> parameter_settings(const OptimizerConfig& config, const Model& model);

/// How many values the optimizer keeps for each of the model's, on average: 1 with momentum, 2 with Adam.
double states_per_value(const OptimizerConfig& config, const Model& model);

}  // namespace trainopt
