#include "train/observe/step_trace.h"

#include "device/tensor.h"
#include "support/catch.h"
#include "support/plans.h"

#include <ATen/record_function.h>

using namespace trainopt;
using namespace trainopt::test;

namespace {

template <class Work>
StepTrace traced(Work work) {
  StepTrace trace;
  const StepObserver observer(trace.operations);
  work();
  return trace;
}

void post(const char* label, const std::vector<c10::IValue>& inputs) { RECORD_FUNCTION(label, inputs); }

}  // namespace

TEST_CASE("operations are traced with types, shapes, layouts and grad mode, and no tensor is kept") {
  const at::Tensor images = at::rand({2, 3, 5, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor weight = at::rand({4, 3, 3, 3}).requires_grad_();
  const auto uses = images.use_count();
  const StepTrace trace = traced([&] {
    at::conv2d(images, weight).sum().backward();
    const at::NoGradGuard no_grad;
    weight.to(at::kBFloat16);
  });
  CHECK(images.use_count() == uses);

  CHECK(trace.calls(is_forward_convolution) == 1);
  const TracedOperation* convolution = trace.find("aten::_convolution");
  REQUIRE(convolution);
  REQUIRE(convolution->tensor(0));
  CHECK(*convolution->tensor(0) ==
        TracedTensor{.type = at::kFloat, .sizes = {2, 3, 5, 4}, .is_nhwc = true, .is_parameter = false});
  REQUIRE(convolution->tensor(1));
  CHECK_FALSE(convolution->tensor(1)->is_nhwc);
  CHECK(convolution->tensor(1)->is_parameter);
  CHECK(convolution->tensor(2) == nullptr);  // no bias
  CHECK(convolution->tensor(100) == nullptr);
  CHECK(convolution->grad_mode);
  CHECK(convolution->depth > 0);  // inside aten::conv2d
  CHECK(trace.find("aten::conv2d")->depth == 0);
  CHECK(trace.calls("aten::convolution_backward") == 1);
  CHECK(multiplications_by_type(trace) == std::map<std::string, int64_t>{{"float32", 2}});

  // libtorch's own backward may also copy; only this copy is of the parameter.
  CHECK(trace.calls([](const TracedOperation& operation) {
    return operation.name == "aten::_to_copy" && operation.tensor(0) && operation.tensor(0)->is_parameter &&
           operation.number(1) == static_cast<int64_t>(at::kBFloat16) && !operation.grad_mode;
  }) == 1);
  CHECK(trace.find("aten::never") == nullptr);
}

TEST_CASE("equal operations share an entry unless range or depth differ") {
  const at::Tensor x = at::ones({2, 2});
  const auto multiply = [&] { at::mm(x, x); };
  const auto in_own = [&] {
    RECORD_FUNCTION("trainopt::own", std::vector<c10::IValue>());
    multiply();
  };
  const auto in_inner = [&] {
    RECORD_USER_SCOPE("inner");
    multiply();
    in_own();
  };
  const StepTrace trace = traced([&] {
    for (int i = 0; i < 3; ++i) multiply();
    RECORD_USER_SCOPE("outer");
    multiply();
    in_inner();
    multiply();
  });
  std::map<std::pair<std::string, int64_t>, int64_t> calls;
  for (const auto& [operation, times] : trace.operations)
    if (operation.name == "aten::mm") calls[{operation.range, operation.depth}] = times;
  CHECK(calls == decltype(calls){{{"", 0}, 3}, {{"outer", 0}, 2}, {{"inner", 0}, 1}, {{"inner", 1}, 1}});
  CHECK(trace.calls("aten::mm") == 7);
}

TEST_CASE("labels carry numbers, and nothing is traced after the observer is destroyed") {
  const StepTrace trace = traced([] { post("trainopt::label", {7, true, 0.5}); });
  post("trainopt::late", {});
  const TracedOperation* label = trace.find("trainopt::label");
  REQUIRE(label);
  CHECK(label->number(0) == 7);
  CHECK(label->number(1) == 1);
  CHECK(label->number(2) == 0);
  CHECK(std::holds_alternative<std::monostate>(label->inputs.at(2)));
  CHECK(trace.calls("trainopt::late") == 0);
  CHECK(trace.count("never.posted") == 0);
}

TEST_CASE("own convolutions are recognised by name, forward ones only in training") {
  const at::Tensor images = at::ones({1, 2, 4, 4}, at::kBFloat16).requires_grad_();
  const auto work = [&] {
    post("trainopt::some_convolution", {images});
    post("trainopt::some_convolution_backward", {images});
    post("trainopt::convolutional", {images});
  };
  const StepTrace training = traced(work);
  CHECK(training.calls(is_forward_convolution) == 1);
  CHECK(training.calls(is_own_convolution) == 2);
  CHECK(multiplications_by_type(training) == std::map<std::string, int64_t>{{"bfloat16", 2}});
  const at::NoGradGuard no_grad;
  const StepTrace evaluation = traced(work);
  CHECK(evaluation.calls(is_forward_convolution) == 0);
  CHECK(evaluation.calls(is_own_convolution) == 1);
}

TEST_CASE("a trainer's second step is observed") {
  Rows rows;
  Trainer trainer(small_plan(4), {}, rows, never_stopped());
  trainer.run();
  const StepTrace& trace = trainer.outcome().trace;
  CHECK(trace.step == 2);
  CHECK(trace.parameters == 4);
  CHECK(trace.gradients_at_start == 4);
  CHECK(trace.parameter_bytes == trace.gradient_bytes);
  CHECK(trace.largest_micro_batch == 8);
  CHECK(trace.backend == BackendSettings());
  CHECK(trace.loader.input_type == at::kFloat);
  CHECK(trace.loader.bytes_delivered > 0);
  CHECK(trace.calls("aten::addmm") == 2);
  CHECK(trace.calls([](const auto& operation) { return operation.range == kOptimizerLabel; }) > 0);
  CHECK(trace.operations.size() < 1000);
}
