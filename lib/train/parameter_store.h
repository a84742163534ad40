// The parameters that this rank updates, and their gradients, summed over the ranks. LocalParameters is the plain
// store: it holds everything on this rank and sends nothing.
#pragma once

#include "comm/config.h"
#include "comm/sharding_costs.h"
#include "model/weights_file.h"
#include "train/checkpoint/archive.h"
#include "train/optimizer/gradients.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace trainopt {

class Model;
struct StepTrace;

/// Runs a function when it goes out of scope.
class Scope {
 public:
  Scope() = default;
  explicit Scope(std::function<void()> at_end) : at_end_(std::move(at_end)) {}
  ~Scope() {
    if (at_end_) at_end_();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::function<void()> at_end_;
};

enum class ClearGradients { zero, drop };

using NameFilter = std::function<bool(const std::string& name)>;
inline bool every_name(const std::string&) { return true; }

/// A computation that needs whole tensors although this rank may have only parts. For each i in parameters() that is
/// `wanted`: use(i, this rank's part of change(the whole tensor of which part(i) is this rank's)). An undefined part(i)
/// is one of zeros if the parameters are sharded; otherwise i is left out.
struct WholeChange {
  NameFilter wanted;  ///< every rank wants the same names
  std::function<at::Tensor(size_t i)> part;
  std::function<at::Tensor(const at::Tensor& whole)> change;  ///< the result has the same shape
  std::function<void(size_t i, const at::Tensor& part)> use;
};

class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  /// Leaves that require gradients, float32 or bfloat16, in the model's order. Gradients have their type.
  virtual const NamedTensors& parameters() const = 0;

  /// Keep the scope open during backward of a micro-batch. Only the last micro-batch of a step communicates.
  virtual Scope accumulate(bool is_last) = 0;
  /// Call after the last micro-batch. Returns the gradients of the whole step, summed over the ranks. Valid until the
  /// next call.
  Gradients& finish_gradients();
  /// Sets the form that finish_gradients() returns (Optimizer::make_gradients()). The default is the plain form.
  void set_form(std::unique_ptr<Gradients> gradients) { finished_ = std::move(gradients); }
  /// `call` changes what finish_gradients() is about to return.
  void when_complete(std::function<void(GradientMemory&)> call) { when_complete_ = std::move(call); }
  /// The gradients as backward has left them so far: one per parameter, undefined if backward did not reach it.
  virtual std::vector<at::Tensor> gradients() const = 0;
  /// Zeroes or drops the gradients. Also allowed in the middle of a step.
  virtual void clear_gradients() = 0;
  /// Called after parameters() have changed. With sharding, makes the new values reach the other ranks.
  virtual void updated() {}

  /// The tensors of which every rank has a copy with the same bits, under the model's names: the same list on every
  /// rank, the model's own memory. Completes exchanges that write to them. Empty if there are no copies.
  virtual NamedTensors replicated() { return {}; }

  /// Whether parameters() are the model's own, in its order, and only the optimizer and load() write to them.
  virtual bool is_local() const { return false; }

  // Save and load per-parameter tensors (the parameters themselves, momentum) under `prefix` + the parameter's name.
  // `tensors` has one for each of parameters(); those of names that `wanted` refuses are left out. Archives hold
  // complete tensors, however they are sharded.
  virtual void save(ArchiveWriter& archive, const std::string& prefix, const std::vector<at::Tensor>& tensors,
                    const NameFilter& wanted = every_name) const;
  virtual void load(const ArchiveReader& archive, const std::string& prefix, std::vector<at::Tensor>& tensors,
                    const NameFilter& wanted = every_name) const;
  /// On rank 0: the complete tensors of which `tensors` are this rank's parts, one for each of parameters(), under the
  /// parameters' names; undefined ones are left out. On other ranks unspecified. Every rank must call it.
  virtual NamedTensors complete(const std::vector<at::Tensor>& tensors) const;
  /// `parts`: [n, k] sums over the elements that this rank has of each of parameters(). The sums over all elements of
  /// each. Every rank must call it.
  virtual at::Tensor sums_of_parts(const at::Tensor& parts) const { return parts; }
  /// Makes the change for each wanted parameter. Every rank must call it.
  virtual void change_whole(const WholeChange& change) const;
  // Save and load what a store keeps between steps besides the parameters.
  virtual void save_pending(ArchiveWriter&) const {}
  virtual void load_pending(const ArchiveReader&) {}
  /// Communicators that the store has made besides the job's.
  virtual std::vector<Communicator*> communicators() { return {}; }
  /// Posts what receipts need to know of this store in StepTrace::counts.
  virtual void report(StepTrace&) const {}
  // Bytes that this rank holds between steps.
  virtual int64_t parameter_bytes() const;
  virtual int64_t gradient_bytes() const;

 protected:
  /// Completes the exchange of gradients between ranks, if any, and returns where they are.
  virtual GradientMemory complete_gradients() = 0;

 private:
  std::unique_ptr<Gradients> finished_ = std::make_unique<Gradients>();
  std::function<void(GradientMemory&)> when_complete_ = [](GradientMemory&) {};
};

class LocalParameters : public ParameterStore {
 public:
  LocalParameters(const Model& model, ClearGradients clear);

  const NamedTensors& parameters() const override { return parameters_; }
  Scope accumulate(bool) override { return Scope(); }
  std::vector<at::Tensor> gradients() const override;
  void clear_gradients() override;
  bool is_local() const override { return true; }

 protected:
  GradientMemory complete_gradients() override;

 private:
  NamedTensors parameters_;
  ClearGradients clear_;
};

// A plan's model as input for the formulas of comm/sharding_costs.h.

struct Plan;

/// Type to which gradients are converted for the exchange; null: unchanged.
std::optional<c10::ScalarType> wire_type(const ParallelConfig& config);

ShardedModel sharded_model(const Plan& plan, const ParallelConfig& config, const RankPosition& position);

}  // namespace trainopt
