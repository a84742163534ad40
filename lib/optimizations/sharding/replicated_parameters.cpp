#include "optimizations/sharding/replicated_parameters.h"

#include "comm/communicator.h"
#include "comm/gradient_reducer.h"
#include "device/tensor.h"
#include "device/tensor_memory.h"
#include "model/model.h"
#include "model/weights_file.h"
#include "optimizations/sharding/sharding.h"
#include "train/observe/autograd_hooks.h"
#include "train/observe/step_trace.h"
#include "train/plan.h"

#include <map>
#include <optional>

namespace trainopt {
namespace {

class ReplicatedParameters : public LocalParameters {
 public:
  ReplicatedParameters(const Model& model, ClearGradients clear, Communicator& communicator,
                       const GradientReducerOptions& options)
      : LocalParameters(model, clear), communicator_(communicator), reducer_(communicator, leaves(), options) {}

  Scope accumulate(bool is_last) override {
    const MemoryScope scope({.use = MemoryUse::gradients});  // it may lay out its buckets anew
    if (is_last) reducer_.prepare();
    return Scope();
  }
  void updated() override {
    const MemoryScope scope({.use = MemoryUse::gradients});
    reducer_.rebuild();  // here no activations are in memory
  }
  NamedTensors replicated() override { return parameters(); }
  bool is_local() const override { return false; }

 protected:
  GradientMemory complete_gradients() override {
    GradientMemory memory = LocalParameters::complete_gradients();
    memory.communicator = &communicator_;
    return memory;
  }

 private:
  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> all;
    for (const auto& [name, parameter] : parameters()) all.push_back(parameter);
    return all;
  }

  Communicator& communicator_;
  GradientReducer reducer_;
};

/// Makes the parameters' gradients views of one tensor of zeros, in which backward then accumulates, and returns it.
at::Tensor attach_flat_gradients(const NamedTensors& parameters) {
  int64_t count = 0;
  for (const auto& [name, parameter] : parameters) count += parameter.numel();
  const at::Tensor flat = at::zeros({count}, parameters.front().second.options().requires_grad(false));
  int64_t begin = 0;
  for (auto [name, parameter] : parameters) {
    parameter.mutable_grad() = flat.as_strided(parameter.sizes(), parameter.strides(), begin);
    begin += parameter.numel();
  }
  return flat;
}

class ShapedReplicas : public LocalParameters {
 public:
  /// `keeps`: gradients stay in the buckets from step to step. Otherwise micro-batches accumulate in memory of their
  /// own, and only the last one moves it to the buckets.
  ShapedReplicas(const Model& model, bool keeps, Communicator& communicator, std::optional<c10::ScalarType> wire_type)
      : LocalParameters(model, keeps ? ClearGradients::zero : ClearGradients::drop),
        communicator_(communicator),
        wire_type_(wire_type) {
    std::map<c10::ScalarType, NamedTensors> by_type;
    for (const auto& each : parameters()) by_type[each.second.scalar_type()].push_back(each);
    for (const auto& [type, alike] : by_type) buckets_.push_back(attach_flat_gradients(alike));
    if (!keeps) clear_gradients();
    for (const auto& [name, parameter] : parameters())
      after_gradient(parameter, [this, shape = parameter.detach()] { send(shape); });
  }

  Scope accumulate(bool is_last) override {
    sends_ = is_last && wire_type_;
    return Scope();
  }
  NamedTensors replicated() override { return parameters(); }
  bool is_local() const override { return false; }

 protected:
  GradientMemory complete_gradients() override {
    sent_.clear();
    GradientMemory memory = LocalParameters::complete_gradients();
    memory.communicator = &communicator_;
    return memory;
  }

 private:
  void send(const at::Tensor& shape) {
    if (sends_ && shape.scalar_type() != *wire_type_) sent_.push_back(at::empty_like(shape, *wire_type_));
  }

  Communicator& communicator_;
  std::optional<c10::ScalarType> wire_type_;
  std::vector<at::Tensor> buckets_;  ///< one for each type of parameters
  bool sends_ = false;
  std::vector<at::Tensor> sent_;
};

/// Stands for the store of make_replicated_parameters() on the meta device, where c10d's Reducer cannot work. It holds
/// the same memory at the same time: the buckets, and gradients rounded to `wire_type` until backward ends.
std::unique_ptr<ParameterStore> make_shaped_replicas(const BuildContext& context,
                                                     std::optional<c10::ScalarType> wire_type) {
  const Plan& plan = context.plan;
  // A single micro-batch's gradients are copied to the buckets one by one, as soon as they exist.
  const bool keeps = plan.clear_gradients == ClearGradients::zero || plan.data.accumulation == 1;
  const MemoryScope scope({.use = MemoryUse::gradients});
  return std::make_unique<ShapedReplicas>(*context.model, keeps, *context.replicas, wire_type);
}

}  // namespace

std::unique_ptr<ParameterStore> make_replicated_parameters(const BuildContext& context, const ParallelConfig& config) {
  if (context.device.is_meta()) return make_shaped_replicas(context, wire_type(config));
  broadcast_state(*context.model, *context.replicas);
  const GradientReducerOptions options{.bucket_bytes = static_cast<int64_t>(config.bucket_cap_mb * 0x1p20),
                                       .overlap = config.overlap_comm,
                                       .wire_type = wire_type(config)};
  return std::make_unique<ReplicatedParameters>(*context.model, context.plan.clear_gradients, *context.replicas,
                                                options);
}

namespace {

constexpr const char* kPending = "parallel.pending_gradients";

class StaleParameters : public LocalParameters {
 public:
  StaleParameters(const Model& model, Communicator& communicator, std::optional<c10::ScalarType> wire_type)
      : LocalParameters(model, ClearGradients::zero),
        communicator_(communicator),
        wire_type_(wire_type),
        gradients_(attach_flat_gradients(parameters())),
        sum_(at::zeros_like(gradients_)) {}

  NamedTensors replicated() override { return parameters(); }
  bool is_local() const override { return false; }
  void save_pending(ArchiveWriter& archive) const override {
    arrive();
    archive.tensor(kPending, sum_.to(at::kFloat));
  }
  void load_pending(const ArchiveReader& archive) override {
    sum_ = at::zeros_like(gradients_);
    archive.tensor(kPending, sum_);
  }
  int64_t gradient_bytes() const override { return static_cast<int64_t>(gradients_.nbytes() + sum_.nbytes()); }
  void report(StepTrace& trace) const override { trace.counts[sharding::kAsyncUpdates] = static_cast<double>(late_); }

 protected:
  /// Sends this step's gradients; the previous step's sum, which has arrived, takes their place.
  GradientMemory complete_gradients() override {
    const at::NoGradGuard no_grad;
    const at::Tensor leaving = gradients_.to(wire_type_.value_or(at::kFloat), /*non_blocking=*/false, /*copy=*/true);
    if (pending_exchange_) ++late_;
    arrive();
    gradients_.copy_(sum_);
    sum_ = leaving;
    pending_exchange_ = communicator_.all_reduce(sum_);
    GradientMemory memory = LocalParameters::complete_gradients();
    memory.communicator = &communicator_;
    return memory;
  }

 private:
  void arrive() const {
    if (pending_exchange_) std::exchange(pending_exchange_, nullptr)->wait();
  }

  Communicator& communicator_;
  std::optional<c10::ScalarType> wire_type_;
  int64_t late_ = 0;            ///< updates with the gradients of the step before
  at::Tensor gradients_, sum_;  ///< flat: this step's; the previous step's, summed over all ranks
  mutable std::unique_ptr<Exchange> pending_exchange_;  ///< exchange that sums sum_
};

}  // namespace

std::unique_ptr<ParameterStore> make_stale_parameters(const BuildContext& context, const ParallelConfig& config) {
  broadcast_state(*context.model, *context.replicas);
  return std::make_unique<StaleParameters>(*context.model, *context.replicas, wire_type(config));
}

}  // namespace trainopt
