#include "train/autograd_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace trainopt {
namespace {

using torch::autograd::variable_list;

class AfterGradient : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit AfterGradient(std::function<void()> call) : call_(std::move(call)) {}
  void operator()(const at::Tensor&) override { call_(); }

 private:
  std::function<void()> call_;
};

class BeforeBackward : public torch::autograd::FunctionPreHook {
 public:
  explicit BeforeBackward(std::function<void()> call) : call_(std::move(call)) {}
  variable_list operator()(const variable_list& gradients) override {
    call_();
    return gradients;
  }

 private:
  std::function<void()> call_;
};

}  // namespace

void after_gradient(const at::Tensor& leaf, std::function<void()> call) {
  torch::autograd::impl::set_post_acc_grad_hooks(leaf, std::make_unique<AfterGradient>(std::move(call)));
}

void before_backward_of(const at::Tensor& output, std::function<void()> call) {
  if (const auto& node = output.grad_fn()) node->add_pre_hook(std::make_unique<BeforeBackward>(std::move(call)));
}

int64_t current_backward() { return torch::autograd::get_current_graph_task_id(); }

void at_end_of_backward(std::function<void()> call) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(call));
}

}  // namespace trainopt
