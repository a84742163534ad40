#include "optimizations/tape_graph.h"

#include "device/tensor.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <stdexcept>
#include <utility>
#include <vector>

namespace trainopt::test {
namespace {

constexpr auto kKey = c10::DispatchKey::Fake;  // below autograd and above the kernels, and otherwise unused

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

void note(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack) {
  const c10::impl::ExcludeDispatchKeyGuard nested(kKey);  // nested operations are not recorded
  if (handle.schema().name() == "aten::_local_scalar_dense")
    throw std::logic_error("the host reads a value during recording");
  Operation operation{
      handle, {stack->end() - static_cast<std::ptrdiff_t>(handle.schema().arguments().size()), stack->end()}, {}};
  handle.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
  operation.outputs.assign(stack->end() - static_cast<std::ptrdiff_t>(handle.schema().returns().size()), stack->end());
  tape->push_back(std::move(operation));
}

struct Writing {
  explicit Writing(std::vector<std::function<void()>>& operations) { tape = &operations; }
  ~Writing() { tape = nullptr; }
};

class TapeGraph : public Graph {
 public:
  void record(const std::function<void()>& work) override {
    const Writing writing(operations_);
    const c10::impl::IncludeDispatchKeyGuard recording(kKey);
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
  const c10::impl::ExcludeDispatchKeyGuard uninterrupted(kKey);
  work();
  if (tape != nullptr) tape->push_back(std::move(work));
}

TORCH_LIBRARY_IMPL(_, Fake, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&note>()); }

}  // namespace trainopt::test
