// Delayed scaling: operands are scaled by the largest magnitude that they had in earlier steps (NVIDIA, Transformer
// Engine, recipe DelayedScaling).
#pragma once

#include "optimizations/fp8/linear.h"
#include "train/precision.h"
#include "train/slot.h"

#include <map>
#include <string>

namespace trainopt::fp8 {

/// The largest magnitudes of every operand of every linear layer of a model, in the running step and in the `length`
/// steps before it, over all ranks. All of it stays on the device.
class AmaxHistory {
 public:
  AmaxHistory(const BuildContext& context, int64_t length);

  /// As ChooseAmax: the largest magnitude of the earlier steps; `current` if that is not finite, if there is no such
  /// step, or if no layer has this parameter. `is_counted`: `current` belongs to the running step.
  at::Tensor choose(const at::Tensor& parameter, Operand operand, const at::Tensor& current, bool is_counted);
  /// Ends the step; drops it if `rolled_back` (a float on the device, may be undefined) is 1. Magnitudes that are not
  /// finite are not kept. Every rank must call it.
  void update(const at::Tensor& rolled_back);

  void save(ArchiveWriter& archive) const;
  void load(const ArchiveReader& archive);

 private:
  at::Tensor largest_over_ranks() const;

  Communicator& communicator_;
  std::map<const c10::TensorImpl*, int64_t> layers_;
  std::vector<std::string> names_;  ///< names of the layers' weights
  at::Tensor steps_;                ///< float32 layers × operands × length, the newest first; 0: no such step
  at::Tensor running_, largest_;    ///< layers × operands: of the running step so far; of steps_
};

/// The history of a model, which its linear layers and its precision share. Each builds its part of a trainer by
/// itself, so the first of them creates it.
class Histories {
 public:
  std::shared_ptr<AmaxHistory> of(const BuildContext& context, int64_t length);

 private:
  std::map<const Model*, std::weak_ptr<AmaxHistory>> all_;
};

/// Ends the history's steps, and saves it with the precision.
std::unique_ptr<Precision> with_history(std::unique_ptr<Precision> inner, std::shared_ptr<AmaxHistory> history);

}  // namespace trainopt::fp8
