#include "optimizations/sharding/replicated_parameters.h"

#include "comm/gradient_reducer.h"
#include "device/memory_label.h"
#include "device/tensor.h"
#include "optimizations/sharding/shaped_replicas.h"
#include "optimizations/sharding/sharding_receipt.h"
#include "train/plan.h"

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

}  // namespace trainopt
