#include "train/profiled_units.h"

#include "device/trace_range.h"
#include "model/model.h"
#include "train/autograd_hooks.h"

#include <memory>
#include <string>
#include <utility>

namespace trainopt {
namespace {

/// The label of the unit whose backward is running. Backward runs the units in reverse order, so the next one's label
/// ends the previous one's.
class BackwardLabel {
 public:
  /// `name` must outlive the label.
  void begin(const std::string& name) {
    if (const int64_t id = current_backward(); std::exchange(backward_, id) != id)
      at_end_of_backward([this] { range_.reset(); });
    range_.reset();  // before the next one begins: ranges of a thread nest
    range_ = std::make_unique<TraceRange>(name.c_str(), TraceRange::Ends::on_any_thread);
  }

 private:
  std::unique_ptr<TraceRange> range_;
  int64_t backward_ = -1;  ///< the one that begin() was last called in; an exception may have ended it
};

class LabelledUnit : public WrappedUnit {
 public:
  LabelledUnit(std::unique_ptr<Unit> inner, std::shared_ptr<BackwardLabel> backward)
      : WrappedUnit(std::move(inner)),
        forward_name_(std::string(kUnitLabel) + name()),
        backward_name_(std::string(kUnitBackwardLabel) + name()),
        backward_(std::move(backward)) {}

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const TraceRange range(forward_name_.c_str());
    at::Tensor output = inner_->forward(input, context);
    if (context.training) before_backward_of(output, [this] { backward_->begin(backward_name_); });
    return output;
  }

 private:
  std::string forward_name_, backward_name_;
  std::shared_ptr<BackwardLabel> backward_;
};

}  // namespace

void label_units(Model& model) {
  if (dynamic_cast<const LabelledUnit*>(model.units().front().get())) return;
  const auto backward = std::make_shared<BackwardLabel>();
  model.wrap_units(
      [&](std::unique_ptr<Unit> unit) { return std::make_unique<LabelledUnit>(std::move(unit), backward); });
}

}  // namespace trainopt
