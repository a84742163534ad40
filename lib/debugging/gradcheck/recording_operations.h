// Operations that take the place of a model's on the meta device: they record what they are called with, and return a
// tensor of the right shape.
#pragma once

#include "debugging/gradcheck/gradient_case.h"

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

inline CaseInput of_samples(const char* name, const at::Tensor& tensor) { return {name, tensor.sizes().vec(), true}; }
inline CaseInput of_parameter(const char* name, const at::Tensor& tensor) {
  return {name, tensor.sizes().vec(), false};
}

// Null: the calls are not recorded.
std::shared_ptr<const ConvolutionOperations> recording_convolution(RecordedCases* cases);
std::shared_ptr<const BatchNormOperations> recording_batch_norm(RecordedCases* cases);
std::shared_ptr<const HeadOperations> recording_head(RecordedCases* cases);
std::shared_ptr<const LinearOperations> recording_linear(RecordedCases* cases);
std::shared_ptr<const AttentionOperations> recording_attention(RecordedCases* cases);
std::shared_ptr<const LayerNormOperations> recording_layer_norm(RecordedCases* cases);
std::shared_ptr<const GeluOperations> recording_gelu(RecordedCases* cases);
std::shared_ptr<const LanguageHeadOperations> recording_language_head(RecordedCases* cases);

/// A unit that tells `cases` its name before it runs.
std::unique_ptr<Unit> announced(std::unique_ptr<Unit> unit, RecordedCases& cases);

}  // namespace trainopt::gradcheck
