#include "optimizations/fp8/amax_history.h"

#include "comm/communicator.h"
#include "device/tensor.h"
#include "model/model.h"

namespace trainopt::fp8 {
namespace {

std::string name_in_archive(const std::string& weight) { return "precision.fp8.amax." + weight; }

class PrecisionWithHistory : public WrappedPrecision {
 public:
  PrecisionWithHistory(std::unique_ptr<Precision> inner, std::shared_ptr<AmaxHistory> history)
      : WrappedPrecision(std::move(inner)), history_(std::move(history)) {}
  void update(const at::Tensor& overflow, const at::Tensor& rolled_back) override {
    WrappedPrecision::update(overflow, rolled_back);
    history_->update(rolled_back);
  }
  void save(ArchiveWriter& archive) const override {
    WrappedPrecision::save(archive);
    history_->save(archive);
  }
  void load(const ArchiveReader& archive) override {
    WrappedPrecision::load(archive);
    history_->load(archive);
  }

 private:
  std::shared_ptr<AmaxHistory> history_;
};

}  // namespace

AmaxHistory::AmaxHistory(const BuildContext& context, int64_t length) : communicator_(*context.replicas) {
  const NamedTensors parameters = context.model->parameters();
  const std::vector<ParameterKind> kinds = context.model->parameter_kinds();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    if (kinds[i] != ParameterKind::other || parameter.dim() != 2 || !fits(parameter.size(1), parameter.size(0)))
      continue;
    layers_[parameter.unsafeGetTensorImpl()] = static_cast<int64_t>(names_.size());
    names_.push_back(name);
  }
  const auto layers = static_cast<int64_t>(names_.size());
  steps_ = at::zeros({layers, kOperands, length}, at::TensorOptions(context.device).dtype(at::kFloat));
  running_ = at::zeros({layers, kOperands}, steps_.options());
  largest_ = at::zeros_like(running_);
}

at::Tensor AmaxHistory::choose(const at::Tensor& parameter, Operand operand, const at::Tensor& current,
                               bool is_counted) {
  const auto layer = layers_.find(parameter.unsafeGetTensorImpl());
  if (layer == layers_.end()) return current;
  const auto of_operand = [&](const at::Tensor& all) {
    return all.narrow(0, layer->second, 1).narrow(1, static_cast<int64_t>(operand), 1);
  };
  if (is_counted) {
    at::Tensor running = of_operand(running_);
    running.copy_(at::maximum(running, current));
  }
  const at::Tensor largest = of_operand(largest_);
  // Not logical_and, which libtorch lacks for the meta tensors of a forecast.
  return at::where(at::isfinite(current).bitwise_and(largest > 0), largest, current);
}

void AmaxHistory::update(const at::Tensor& rolled_back) {
  const at::NoGradGuard no_grad;
  const at::Tensor newest = largest_over_ranks();
  at::Tensor steps =
      at::cat({at::where(at::isfinite(newest), newest, 0).unsqueeze(2), steps_.narrow(2, 0, steps_.size(2) - 1)}, 2);
  if (rolled_back.defined()) steps = at::where(rolled_back > 0, steps_, steps);
  steps_.copy_(steps);
  largest_.copy_(steps_.amax(2));
  running_.zero_();
}

at::Tensor AmaxHistory::largest_over_ranks() const {
  std::vector<int64_t> sizes = running_.sizes().vec();
  sizes.insert(sizes.begin(), communicator_.ranks());
  at::Tensor all = at::empty(sizes, running_.options());
  communicator_.all_gather(all, running_)->wait();
  return all.amax(0);
}

void AmaxHistory::save(ArchiveWriter& archive) const {
  for (size_t i = 0; i < names_.size(); ++i)
    archive.tensor(name_in_archive(names_[i]), steps_.select(0, static_cast<int64_t>(i)));
}

void AmaxHistory::load(const ArchiveReader& archive) {
  for (size_t i = 0; i < names_.size(); ++i) {
    at::Tensor layer = steps_.select(0, static_cast<int64_t>(i));
    archive.tensor(name_in_archive(names_[i]), layer);
  }
  largest_.copy_(steps_.amax(2));
}

std::shared_ptr<AmaxHistory> Histories::of(const BuildContext& context, int64_t length) {
  auto& known = all_[context.model];
  std::shared_ptr<AmaxHistory> history = known.lock();
  if (!history) known = history = std::make_shared<AmaxHistory>(context, length);
  return history;
}

std::unique_ptr<Precision> with_history(std::unique_ptr<Precision> inner, std::shared_ptr<AmaxHistory> history) {
  return std::make_unique<PrecisionWithHistory>(std::move(inner), std::move(history));
}

}  // namespace trainopt::fp8
