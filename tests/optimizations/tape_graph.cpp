#include "optimizations/tape_graph.h"

#include "device/differentiable.h"
#include "device/tensor.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <stdexcept>
#include <utility>
#include <vector>

namespace trainopt::test {
namespace {

std::vector<std::function<void()>>* tape = nullptr;  ///< the recording in progress; null: none

std::vector<at::Tensor> tensors_of(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const auto& value : values) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
  }
  return tensors;
}

struct Operation {
  void operator()() const {
    auto stack = inputs;
    handle.callBoxed(stack);
    const auto now = tensors_of(stack), then = tensors_of(outputs);
    for (size_t i = 0; i < now.size(); ++i)
      if (now[i].defined() && !now[i].storage().is_alias_of(then[i].storage()))
        then[i].copy_(now[i]);  // neither a view nor in place
  }
  c10::OperatorHandle handle;
  std::vector<c10::IValue> inputs, outputs;
};

class Writing : public BelowAutograd {
 public:
  explicit Writing(std::vector<std::function<void()>>& operations) { tape = &operations; }
  ~Writing() override { tape = nullptr; }

 private:
  void operation(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack& stack) override {
    if (tape == nullptr) return compute(handle, keys, stack);  // within on_tape()
    if (handle.schema().name() == "aten::_local_scalar_dense")
      throw std::logic_error("the host reads a value during recording");
    Operation one{
        handle, {stack.end() - static_cast<std::ptrdiff_t>(handle.schema().arguments().size()), stack.end()}, {}};
    compute(handle, keys, stack);
    one.outputs.assign(stack.end() - static_cast<std::ptrdiff_t>(handle.schema().returns().size()), stack.end());
    tape->push_back(std::move(one));
  }
};

class TapeGraph : public Graph {
 public:
  void record(const std::function<void()>& work) override {
    const Writing writing(operations_);
    work();
  }

  void replay() override {
    if (!std::exchange(done_, true)) return;  // recording already ran the work, which counts as the first replay
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (const auto& operation : operations_) operation();
  }

 private:
  std::vector<std::function<void()>> operations_;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<Graph> make_tape_graph(const at::Generator&, const Graph*) { return std::make_unique<TapeGraph>(); }

void on_tape(std::function<void()> work) {
  auto* const writing = std::exchange(tape, nullptr);
  work();
  tape = writing;
  if (tape != nullptr) tape->push_back(std::move(work));
}

}  // namespace trainopt::test
