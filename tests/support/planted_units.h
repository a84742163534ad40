// Faults planted in one unit of a trainer's model, as if the unit had them itself.
#pragma once

#include "train/plan.h"

namespace trainopt::test {

using Change = std::function<at::Tensor(const at::Tensor&)>;

class PlantedUnit : public WrappedUnit {
 public:
  PlantedUnit(std::unique_ptr<Unit> inner, Change change) : WrappedUnit(std::move(inner)), change_(std::move(change)) {}
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const at::Tensor output = inner_->forward(input, context);
    return context.training ? change_(output) : output;
  }

 private:
  Change change_;
};

/// The unit's output in training becomes `change` of it. The model is wrapped before any other part sees it, so labels
/// and checks cover the fault.
inline void plant(Plan& plan, const std::string& unit, Change change) {
  plan.wrap_model.insert(plan.wrap_model.begin(), [=](Model& model) {
    model.wrap_units([&](std::unique_ptr<Unit> each) -> std::unique_ptr<Unit> {
      if (each->name() != unit) return each;
      return std::make_unique<PlantedUnit>(std::move(each), change);
    });
  });
}

/// `change` in the given micro-step of the trainer, counted from 1; nothing in the others.
inline Change only_in(int64_t micro_step, Change change) {
  return [=, calls = int64_t{0}](const at::Tensor& x) mutable { return ++calls == micro_step ? change(x) : x; };
}

}  // namespace trainopt::test
