// Records the operations that a model on the meta device calls, and with which shapes.
#pragma once

#include "debugging/gradcheck/gradient_case.h"
#include "train/operation_slots.h"

#include <map>

namespace trainopt::gradcheck {

/// The distinct cases of a forward, in the order of their first calls.
class RecordedCases {
 public:
  /// `over_ranks`: batch-norm takes the samples of all ranks as one batch.
  RecordedCases(const Model& model, bool over_ranks);

  /// `weight`: the parameter of `model` that names the layer. Undefined if the operation has none: then the unit's name
  /// stands for the layer's.
  void add(GradientCase found, const at::Tensor& weight);
  void begin_unit(std::string name) { unit_ = std::move(name); }
  bool over_ranks() const { return over_ranks_; }
  std::vector<GradientCase> take() { return std::move(all_); }

 private:
  bool over_ranks_;
  std::map<const c10::TensorImpl*, std::string> layers_;
  std::string unit_;
  std::vector<GradientCase> all_;
};

/// From now on, what `model` calls through a slot that is not plain is added to `cases`. `model` is on the meta device,
/// and no longer used than `slots` and `cases` exist.
void record_operations(Model& model, const OperationSlots& slots, RecordedCases& cases);

}  // namespace trainopt::gradcheck
