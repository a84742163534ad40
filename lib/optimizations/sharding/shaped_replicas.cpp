#include "optimizations/sharding/shaped_replicas.h"

#include "device/memory_label.h"
#include "device/tensor.h"
#include "optimizations/sharding/flat_gradients.h"
#include "train/observe/autograd_hooks.h"
#include "train/plan.h"

#include <map>

namespace trainopt {
namespace {

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
