// Muon (Jordan et al. 2024): the momentum of a matrix, made nearly orthogonal, is its update. As torch.optim.Muon.
#pragma once

#include "train/update_rules.h"

namespace trainopt {

/// Nearly the nearest matrix with orthogonal rows or columns, by `config.ns_steps` Newton-Schulz iterations in
/// `config.ns_dtype`, which is the result's type. `matrix`: of any floating type, 2-D.
at::Tensor orthogonalized(const at::Tensor& matrix, const MuonConfig& config);

/// Updates matrices (ParameterSettings::orthogonal) by Muon, and the others by AdamW.
std::unique_ptr<UpdateRule> make_muon_rule(const MuonConfig& config, const at::Tensor& like);

}  // namespace trainopt
