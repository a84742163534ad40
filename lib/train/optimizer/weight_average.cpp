#include "train/optimizer/weight_average.h"

#include "device/tensor.h"
#include "train/optimizer/update_rules.h"
#include "train/plan.h"
#include "train/slot.h"

namespace trainopt {
namespace {

class AveragedWeights : public WeightAverage {
 public:
  AveragedWeights(const AverageRule& rule, const BuildContext& context)
      : rule_(rule),
        store_(*context.parameters),
        steps_done_(*context.steps_done),
        buffers_(context.model->buffers()),
        count_(at::zeros({}, at::TensorOptions(context.device).dtype(at::kDouble))) {
    for (const auto& [name, parameter] : store_.parameters()) averages_.push_back(wide_zeros_like(parameter));
    for (const auto& [name, buffer] : buffers_) buffer_averages_.push_back(wide_zeros_like(buffer));
  }

  void update(ParameterStore&, const at::Tensor& skip_update) override {
    const int64_t step = steps_done_ + 1;
    const bool counts = step >= rule_.first_step && (step - rule_.first_step) % rule_.every_n_steps == 0;
    if (!counts && !count_.is_meta()) return;  // a forecast is of a step that counts
    const at::NoGradGuard no_grad;
    commit(count_, skip_update, [](at::Tensor& count) { count.add_(1); });
    // The first step is copied, whatever the rule.
    const at::Tensor weight =
        rule_.decay ? at::where(count_ > 1, at::full_like(count_, 1 - *rule_.decay), at::ones_like(count_))
                    : 1 / count_.clamp_min(1);
    size_t i = 0;
    for (const auto& [name, parameter] : store_.parameters()) add(averages_[i++], parameter, weight, skip_update);
    i = 0;
    for (const auto& [name, buffer] : buffers_) add(buffer_averages_[i++], buffer, weight, skip_update);
  }

  bool begin_use() override {
    if (count_.item<double>() == 0) return false;
    const at::NoGradGuard no_grad;
    exchange(store_.parameters(), averages_);
    exchange(buffers_, buffer_averages_);
    return true;
  }
  void end_use() override {
    const at::NoGradGuard no_grad;
    size_t i = 0;
    for (const auto& [name, parameter] : store_.parameters()) parameter.copy_(own_values_[i++]);
    for (const auto& [name, buffer] : buffers_) buffer.copy_(own_values_[i++]);
    own_values_.clear();
  }

  void save(ArchiveWriter& archive) const override {
    archive.value("average_first_step", rule_.first_step);
    archive.tensor("average.count", count_);
    store_.save(archive, "average.", averages_);
    for (size_t i = 0; i < buffers_.size(); ++i) archive.tensor("average." + buffers_[i].first, buffer_averages_[i]);
  }
  void load(const ArchiveReader& archive) override {
    rule_.first_step = archive.integer("average_first_step");  // a default would follow the run's new length
    archive.tensor("average.count", count_);
    store_.load(archive, "average.", averages_);
    for (size_t i = 0; i < buffers_.size(); ++i) archive.tensor("average." + buffers_[i].first, buffer_averages_[i]);
  }

 private:
  /// Zeros in at least float32; counts, which are not averaged, keep their own type.
  static at::Tensor wide_zeros_like(const at::Tensor& tensor) {
    const at::ScalarType type =
        tensor.is_floating_point() ? at::promoteTypes(tensor.scalar_type(), at::kFloat) : tensor.scalar_type();
    return at::zeros_like(tensor.detach(), tensor.options().dtype(type).requires_grad(false));
  }

  static void add(const at::Tensor& average, const at::Tensor& value, const at::Tensor& weight,
                  const at::Tensor& skip_update) {
    commit(average, skip_update, [&](at::Tensor& a) {
      if (!a.is_floating_point())
        a.copy_(value);
      else
        a.lerp_(value.to(a.scalar_type()), weight.to(a.scalar_type()));
    });
  }

  /// Gives tensors their averages and keeps what they had.
  void exchange(const NamedTensors& tensors, const std::vector<at::Tensor>& averages) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      at::Tensor tensor = tensors[i].second;
      own_values_.push_back(tensor.detach().clone());
      tensor.copy_(averages[i]);
    }
  }

  AverageRule rule_;
  ParameterStore& store_;
  const int64_t& steps_done_;
  NamedTensors buffers_;
  at::Tensor count_;  ///< averaged steps; on the device, because only the device knows whether one is skipped
  std::vector<at::Tensor> averages_, buffer_averages_;
  std::vector<at::Tensor> own_values_;  ///< values of parameters, then buffers, between begin_use() and end_use()
};

}  // namespace

std::unique_ptr<WeightAverage> make_average(const AverageRule& rule, const BuildContext& context) {
  return std::make_unique<AveragedWeights>(rule, context);
}

}  // namespace trainopt
