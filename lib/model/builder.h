// Builds a network: creates its tensors on a device, sets their initial values and records them in order.
#pragma once

#include "model/initial_values.h"
#include "model/operations.h"
#include "model/side_values.h"
#include "model/unit.h"
#include "model/weights_file.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

namespace trainopt {

/// What an optimizer may treat differently. `norm`: weights and biases of batch-norm and layer norm.
enum class ParameterKind { other, norm, embedding };

/// One sample's shape: an image, or text if `tokens` is not 0.
struct InputShape {
  int64_t channels = 3, height = 224, width = 224;
  int64_t tokens = 0;
  bool is_text() const { return tokens > 0; }
  bool operator==(const InputShape&) const = default;
};

struct LinearSize {
  int64_t in, out;
  bool operator==(const LinearSize&) const = default;
};

/// How many layers of a kind a network has. Optimizations find what they work on by these.
struct LayerCounts {
  int64_t convolutions_3x3 = 0, other_convolutions = 0, batch_norms = 0;
  int64_t other_batch_norms = 0;  ///< batch-norms of a program that no slot computes
  /// The fewest values of a channel that a batch-norm of training sees in one sample, such as the pixels of its input;
  /// 0: there is none. With one, a batch of one sample has no variance.
  int64_t least_norm_values = 0;
  void saw_norm_of(int64_t values) {
    least_norm_values = least_norm_values == 0 ? values : std::min(least_norm_values, values);
  }
  int64_t layer_norms = 0, gelus = 0, attentions = 0;
  int64_t written_attentions = 0;   ///< those among them that a program has written out
  int64_t replaced_if_asked = 0;    ///< these, and libtorch's with a mask: a named implementation replaces them
  std::vector<LinearSize> linears;  ///< without a language model's last layer, whose weight is its embedding's
  bool attention_drops = false;     ///< training drops weights of a program's attention
  bool draws = false;               ///< training draws random numbers: dropout, stochastic depth
  bool language_head = true;        ///< a language model's last layer is linear, without bias
  bool imported = false;            ///< an exported program: these are the layers that were found in it
  std::string found = {};           ///< what was found in a program, and what stays as it is and why
  /// Also those whose statistics need two values, though no slot computes them.
  int64_t all_batch_norms() const { return batch_norms + other_batch_norms; }
  int64_t convolutions() const { return convolutions_3x3 + other_convolutions; }
};

/// A tensor without values on the meta device. It repeats one element, so that a forecast, all of whose tensors are on
/// that device, counts no memory for it.
at::Tensor shape_only(at::IntArrayRef shape, at::ScalarType type);

/// A parameter or buffer under its full name, such as "layer1.0.conv1.weight".
struct StateEntry {
  std::string name;
  at::Tensor tensor;
  bool trainable;
  size_t unit;                       ///< index of the unit that holds it
  std::vector<size_t> also_in = {};  ///< other units that compute with it
  WeightCopy copy = nullptr;         ///< the 16-bit copy its layer would use; null if the layer uses none
  bool transposed_in_files = false;
  ParameterKind kind = ParameterKind::other;
  InitialValues values = {};  ///< a parameter's initial values
  bool in_head = false;       ///< it belongs to the last layer, which model.replace_head starts anew
  bool held = true;           ///< false: a unit that is not in this process computes with it; the tensor has no values
};

/// Some consecutive units of a network, by index.
struct UnitRange {
  size_t first = 0, end = std::numeric_limits<size_t>::max();
  bool contains(size_t unit) const { return first <= unit && unit < end; }
  bool operator==(const UnitRange&) const = default;
};

/// The model's name of a tensor in a file of weights; null for a tensor that the model ignores.
using NameOfFile = std::function<std::optional<std::string>(const std::string& name)>;

class Builder {
 public:
  /// `held`: the units whose parameters and buffers this process has; those of other units have shapes only.
  Builder(at::Device device, uint64_t seed, const UnitRange& held = {});

  /// A float32 tensor that requires gradients; without values on the meta device. Names are unique.
  at::Tensor parameter(const std::string& name, at::IntArrayRef shape, const InitialValues& values,
                       ParameterKind kind = ParameterKind::other);
  /// The handle through which a layer finds the 16-bit copy of this parameter, if one is ever stored. The parameter
  /// must exist already.
  WeightCopy copy_of(const std::string& name);
  /// A parameter of an earlier unit with which the current one computes, too (tied weights). `values`: of one that is
  /// stored(), should this process have the later unit only.
  at::Tensor shared(const std::string& name, const std::function<at::Tensor()>& values = {});
  /// The parameter is of the last layer of a program. A built-in network's last layer is its last unit.
  void belongs_to_head(const std::string& name) { entry_of(name).in_head = true; }
  /// Files hold this matrix transposed.
  void transpose_in_files(const std::string& name);
  /// How names in files differ from the model's. Two names may stand for one tensor if both hold the same values.
  void names_in_files(NameOfFile name_of_file) { name_of_file_ = std::move(name_of_file); }
  at::Tensor buffer(const std::string& name, at::IntArrayRef shape, at::ScalarType type, double value);
  /// What units leave to later ones beside their output; by default nothing.
  void passes(PassedValues passed) { passed_ = std::move(passed); }

  /// A parameter or buffer whose values are known. `values` returns them in the CPU's memory and is called only if this
  /// process holds them.
  at::Tensor stored(const std::string& name, at::IntArrayRef shape, at::ScalarType type, bool trainable,
                    ParameterKind kind, const std::function<at::Tensor()>& values);

  at::Device device() const { return device_; }
  /// Whether this process has the unit that is being constructed.
  bool holds_current() const { return held_.contains(units_.size()); }

  /// Constructs a unit of type U from (builder, arguments...) and appends it. Tensors that its constructor requests
  /// belong to it.
  template <class U, class... Arguments>
  void add(Arguments&&... arguments) {
    auto unit = std::make_unique<U>(*this, std::forward<Arguments>(arguments)...);
    units_.push_back(std::move(unit));
  }

  /// Layers without parameters of their own, and layer norms, count themselves here; Model::layer_counts() adds those
  /// that the parameters show.
  LayerCounts& layers() { return layers_; }
  /// The operations that this model's layers call. The model can replace them later.
  std::shared_ptr<const Operations> operations() const { return operations_; }

 private:
  friend class Model;
  StateEntry& entry_of(const std::string& name);
  at::Tensor new_parameter(const std::string& name, at::IntArrayRef shape, const InitialValues& values) const;

  at::Device device_;
  uint64_t seed_;
  UnitRange held_;
  std::vector<StateEntry> entries_;
  std::vector<std::unique_ptr<Unit>> units_;
  LayerCounts layers_;
  NameOfFile name_of_file_ = [](const std::string& name) { return std::optional(name); };
  PassedValues passed_ = [](size_t, at::IntArrayRef, bool) { return std::vector<PassedValue>(); };
  std::shared_ptr<Operations> operations_ = std::make_shared<Operations>();
};

}  // namespace trainopt
