#include "optimizations/sharding/shaped_replicas.h"

#include "device/memory_label.h"
#include "device/tensor.h"
#include "optimizations/sharding/flat_gradients.h"
#include "train/autograd_hooks.h"
#include "train/plan.h"

namespace trainopt {
namespace {

class ShapedReplicas : public LocalParameters {
 public:
  /// `keeps`: gradients stay in the buckets from step to step. Otherwise micro-batches accumulate in memory of their
  /// own, and only the last one moves it to the buckets.
  ShapedReplicas(const Model& model, bool keeps, Communicator& communicator, std::optional<c10::ScalarType> wire_type)
      : LocalParameters(model, keeps ? ClearGradients::zero : ClearGradients::drop),
        communicator_(communicator),
        wire_type_(wire_type),
        buckets_(attach_flat_gradients(parameters())) {
    if (!keeps) clear_gradients();
    for (const auto& [name, parameter] : parameters())
      after_gradient(parameter, [this, numel = parameter.numel()] { send(numel); });
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
  void send(int64_t values) {
    if (sends_) sent_.push_back(at::empty({values}, buckets_.options().dtype(*wire_type_)));
  }

  Communicator& communicator_;
  std::optional<c10::ScalarType> wire_type_;
  at::Tensor buckets_;
  bool sends_ = false;
  std::vector<at::Tensor> sent_;
};

}  // namespace

std::unique_ptr<ParameterStore> make_shaped_replicas(const BuildContext& context,
                                                     std::optional<c10::ScalarType> wire_type) {
  const Plan& plan = context.plan;
  // A single micro-batch's gradients are copied to the buckets one by one, as soon as they exist.
  const bool keeps = plan.clear_gradients == ClearGradients::zero || plan.data.accumulation == 1;
  const MemoryScope scope({.use = MemoryUse::gradients});
  return std::make_unique<ShapedReplicas>(*context.model, keeps, *context.replicas, wire_type);
}

}  // namespace trainopt
