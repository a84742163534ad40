#include "optimizations/sharding/stale_parameters.h"

#include "comm/communicator.h"
#include "device/tensor.h"
#include "model/model.h"
#include "optimizations/sharding/flat_gradients.h"
#include "optimizations/sharding/sharding_receipt.h"

namespace trainopt {
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

 protected:
  /// Sends this step's gradients; the previous step's sum, which has arrived, takes their place.
  GradientMemory complete_gradients() override {
    const at::NoGradGuard no_grad;
    const at::Tensor leaving = gradients_.to(wire_type_.value_or(at::kFloat), /*non_blocking=*/false, /*copy=*/true);
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
  at::Tensor gradients_, sum_;  ///< flat: this step's; the previous step's, summed over all ranks
  mutable std::unique_ptr<Exchange> pending_exchange_;  ///< of sum_
};

}  // namespace

std::unique_ptr<ParameterStore> make_stale_parameters(const BuildContext& context, const ParallelConfig& config) {
  broadcast_state(*context.model, *context.replicas);
  return std::make_unique<StaleParameters>(*context.model, *context.replicas, wire_type(config));
}

}  // namespace trainopt
