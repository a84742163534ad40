#include "train/observe/autograd_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

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

class AfterNode : public torch::autograd::FunctionPostHook {
 public:
  AfterNode(const torch::autograd::Node& node, std::function<void(const BackwardNode&)> call)
      : node_(node), call_(std::move(call)) {}
  variable_list operator()(const variable_list& of_inputs, const variable_list& of_outputs) override {
    call_({.name = node_.name(),
           .forward_thread = node_.thread_id(),
           .number = static_cast<int64_t>(node_.sequence_nr()),
           .gradients_of_outputs = of_outputs,
           .gradients_of_inputs = of_inputs});
    return of_inputs;
  }

 private:
  const torch::autograd::Node& node_;  ///< owns this hook
  std::function<void(const BackwardNode&)> call_;
};

}  // namespace

void after_gradient(const at::Tensor& leaf, std::function<void()> call) {
  torch::autograd::impl::set_post_acc_grad_hooks(leaf, std::make_unique<AfterGradient>(std::move(call)));
}

void before_backward_of(const at::Tensor& output, std::function<void()> call) {
  if (const auto& node = output.grad_fn()) node->add_pre_hook(std::make_unique<BeforeBackward>(std::move(call)));
}

void after_each_node(const at::Tensor& loss, const std::function<void(const BackwardNode&)>& call) {
  std::vector<torch::autograd::Node*> left;
  std::unordered_set<torch::autograd::Node*> known;
  const auto add = [&](torch::autograd::Node* node) {
    if (node && node->num_outputs() > 0 && known.insert(node).second) left.push_back(node);
  };
  add(loss.grad_fn().get());
  while (!left.empty()) {
    torch::autograd::Node* node = left.back();
    left.pop_back();
    node->add_post_hook(std::make_unique<AfterNode>(*node, call));
    for (const auto& edge : node->next_edges()) add(edge.function.get());
  }
}

int64_t current_backward() { return torch::autograd::get_current_graph_task_id(); }

void at_end_of_backward(std::function<void()> call) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(call));
}

}  // namespace trainopt
