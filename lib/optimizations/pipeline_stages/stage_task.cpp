#include "optimizations/pipeline_stages/stage_task.h"

namespace trainopt::pipeline_stages {
namespace {

class StageTask : public Task {
 public:
  explicit StageTask(std::unique_ptr<Task> inner) : inner_(std::move(inner)) {}
  TaskOutput loss(Model& model, const at::Tensor& input, const at::Tensor&,
                  const ForwardContext& context) const override {
    return {model.forward(input, context), {}};
  }
  TaskOutput evaluation_loss(Model& model, const at::Tensor& input, const at::Tensor&,
                             const ForwardContext& context) const override {
    model.forward(input, context);
    return {};
  }
  bool counts_correct() const override { return inner_->counts_correct(); }
  at::Tensor correct(const at::Tensor&, const at::Tensor&) const override { return {}; }

 private:
  std::unique_ptr<Task> inner_;
};

}  // namespace

std::unique_ptr<Task> make_stage_task(std::unique_ptr<Task> inner) {
  return std::make_unique<StageTask>(std::move(inner));
}

}  // namespace trainopt::pipeline_stages
