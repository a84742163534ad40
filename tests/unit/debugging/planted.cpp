// Wrong gradients, planted into a network's operations, are found and named; right ones raise no alarm.
#include "debugging/gradcheck/gradcheck.h"
#include "device/differentiable.h"
#include "device/tensor.h"
#include "support/catch.h"
#include "support/plans.h"

using namespace trainopt;
using namespace trainopt::gradcheck;
using namespace trainopt::test;

namespace {

using Distortion = at::Tensor (*)(const at::Tensor&);

at::Tensor unchanged(const at::Tensor& gradient) { return gradient; }
at::Tensor scaled(const at::Tensor& gradient) { return gradient * 1.01; }
at::Tensor dropped(const at::Tensor& gradient) { return at::zeros_like(gradient); }
at::Tensor wrong_in_first_row(const at::Tensor& gradient) {
  at::Tensor wrong = gradient.clone();
  wrong.select(2, 0).mul_(1.01);
  return wrong;
}

/// Changes the gradient of one input of an operation.
struct Fault {
  std::string input;
  Distortion change;

  at::Tensor on(const std::string& name, const at::Tensor& tensor) const {
    if (name != input) return tensor;
    return differentiable(
        {tensor}, [&](Tensors&) { return tensor.detach().clone(); },
        [change = change](const BackwardCall& call) -> Tensors { return {change(call.gradient)}; });
  }
};

class FaultyConvolution : public PlainConvolutionOperations {
 public:
  explicit FaultyConvolution(Fault fault) : fault_(std::move(fault)) {}
  at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const override {
    return PlainConvolutionOperations::forward(shape, fault_.on("input", input), fault_.on("weight", weight));
  }

 private:
  Fault fault_;
};

class FaultyBatchNorm : public PlainBatchNormOperations {
 public:
  using Plain = PlainBatchNormOperations;
  explicit FaultyBatchNorm(Fault fault) : fault_(std::move(fault)) {}

  at::Tensor batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                             const ForwardContext& context) const override {
    return Plain::batch_norm_relu(fault_.on("input", input), faulty(norm), context);
  }
  at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                                 const ForwardContext& context) const override {
    return Plain::batch_norm_add_relu(fault_.on("input", input), faulty(norm), fault_.on("residual", residual),
                                      context);
  }
  at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override {
    return Plain::stem_pool(fault_.on("input", input), faulty(norm), context);
  }

 private:
  BatchNorm2d faulty(BatchNorm2d norm) const {
    norm.weight = fault_.on("weight", norm.weight);
    norm.bias = fault_.on("bias", norm.bias);
    return norm;
  }

  Fault fault_;
};

class FaultyHead : public PlainHeadOperations {
 public:
  explicit FaultyHead(Fault fault) : fault_(std::move(fault)) {}
  at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const override {
    Linear faulty = linear;
    faulty.weight = fault_.on("weight", linear.weight);
    return PlainHeadOperations::head(fault_.on("input", input), faulty, context);
  }

 private:
  Fault fault_;
};

class FaultyAttention : public PlainAttentionOperations {
 public:
  explicit FaultyAttention(Fault fault) : fault_(std::move(fault)) {}
  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const AttentionOptions& options, const ForwardContext& context) const override {
    return PlainAttentionOperations::attention(fault_.on("query", query), fault_.on("key", key),
                                               fault_.on("value", value), options, context);
  }

 private:
  Fault fault_;
};

class FaultyTask : public ClassificationTask {
 public:
  FaultyTask(double smoothing, Fault fault) : ClassificationTask(smoothing), fault_(std::move(fault)) {}
  TaskOutput loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                  const ForwardContext& context) const override {
    return ClassificationTask::loss(model, fault_.on("outputs", input), target, context);
  }

 private:
  Fault fault_;
};

/// ResNet-18 on images so small that its last blocks have one pixel.
Plan resnet_plan(StemKind stem = StemKind::cifar) {
  Plan plan = small_plan(1);
  plan.model.config = {.name = ModelKind::resnet18, .stem = stem};
  plan.train.label_smoothing = 0.1;
  return plan;
}

/// Two blocks on the four patches of an image.
Plan vit_plan() {
  Plan plan = small_plan(1);
  plan.model.config = {.name = ModelKind::vit, .patch = 4, .layers = 2, .heads = 2, .width = 16};
  return plan;
}

template <class Faulty, class Part>
void plant(Slot<Part>& slot, const Fault& fault) {
  slot.fill("test", "faulty", [fault](const BuildContext&) { return std::make_unique<Faulty>(fault); });
}

Report check(const Plan& plan) {
  const auto model = plan.build_model();
  const auto communicator = make_single_communicator();
  return check_operations(CheckedSlots(plan), {plan, plan.device, {}, communicator.get(), model.get()});
}

/// The fault is found in every operation that has it, and the first of them is `operation` of `layer`.
void check_found(const Plan& plan, const std::string& operation, const std::string& layer, const Fault& fault) {
  INFO(operation << ", " << fault.input);
  const Report report = check(plan);
  REQUIRE_FALSE(report.operations.empty());
  for (const auto& checked : report.operations) {
    INFO(checked.gradient_case.operation << " of " << checked.gradient_case.layer);
    CHECK_FALSE(checked.result.passed());
    CHECK(checked.result.gradient == fault.input);
    CHECK(checked.result.repeatable);
    if (fault.change == wrong_in_first_row && checked.gradient_case.inputs[0].sizes[2] > 2)
      CHECK(checked.result.backward.slice == "[:, :, 0, :]");
  }
  const auto failure = failure_of(report);
  REQUIRE(failure);
  CHECK(failure->code() == ExitCode::bug);
  CHECK_THAT(failure->what(), ContainsSubstring(operation + " of " + layer + " (" +
                                                report.operations[0].gradient_case.inputs[0].name + " [8, ") &&
                                  ContainsSubstring("the gradient of " + fault.input));
}

}  // namespace

TEST_CASE("a wrong gradient of batch-norm is found and named") {
  for (const Fault& fault : std::vector<Fault>{{"input", scaled},
                                               {"input", wrong_in_first_row},
                                               {"weight", scaled},
                                               {"weight", dropped},
                                               {"bias", scaled}}) {
    Plan plan = resnet_plan();
    plant<FaultyBatchNorm>(plan.operations.batch_norm, fault);
    check_found(plan, "batch_norm_relu", "bn1", fault);
  }
}

TEST_CASE("a wrong gradient of the residual is found and named") {
  for (const Distortion change : {scaled, dropped, wrong_in_first_row}) {
    Plan plan = resnet_plan();
    const Fault fault{"residual", change};
    plant<FaultyBatchNorm>(plan.operations.batch_norm, fault);
    check_found(plan, "batch_norm_add_relu", "layer1.0.bn2", fault);
  }
}

TEST_CASE("a wrong gradient of the stem's max-pool is found and named") {
  for (const Distortion change : {scaled, wrong_in_first_row}) {
    Plan plan = resnet_plan(StemKind::imagenet);
    const Fault fault{"input", change};
    plant<FaultyBatchNorm>(plan.operations.batch_norm, fault);
    check_found(plan, "stem_pool", "bn1", fault);
  }
}

TEST_CASE("a wrong gradient of a convolution is found and named") {
  for (const Fault& fault : std::vector<Fault>{{"input", wrong_in_first_row}, {"weight", scaled}}) {
    Plan plan = resnet_plan();
    plant<FaultyConvolution>(plan.operations.convolution, fault);
    check_found(plan, "convolution", "conv1", fault);
  }
}

TEST_CASE("a wrong gradient of the head is found and named") {
  for (const Fault& fault : std::vector<Fault>{{"input", scaled}, {"weight", dropped}}) {
    Plan plan = resnet_plan();
    plant<FaultyHead>(plan.operations.head, fault);
    check_found(plan, "head", "fc", fault);
  }
}

TEST_CASE("a wrong gradient of attention is found and named") {
  for (const Fault& fault :
       std::vector<Fault>{{"query", scaled}, {"key", dropped}, {"value", scaled}, {"value", wrong_in_first_row}}) {
    Plan plan = vit_plan();
    plant<FaultyAttention>(plan.operations.attention, fault);
    check_found(plan, "attention", "encoder.layers.encoder_layer_0", fault);
  }
}

TEST_CASE("a right backward of attention raises no alarm, and blocks of equal shapes are one case") {
  Plan plan = vit_plan();
  plant<FaultyAttention>(plan.operations.attention, Fault{"value", unchanged});
  plant<FaultyConvolution>(plan.operations.convolution, Fault{"weight", unchanged});
  const Report report = check(plan);
  REQUIRE(report.operations.size() == 2);
  CHECK(report.operations[0].gradient_case.layer == "conv_proj");
  CHECK(report.operations[1].gradient_case.calls == 2);
  CHECK(report.operations[1].gradient_case.inputs[1].sizes == std::vector<int64_t>{8, 2, 5, 8});
  CHECK_FALSE(failure_of(report));
}

TEST_CASE("a wrong gradient of the loss is found and named") {
  Plan plan = resnet_plan();
  const Fault fault{"outputs", scaled};
  plan.task.fill("test", "faulty", [fault](const BuildContext& context) {
    return std::make_unique<FaultyTask>(context.plan.train.label_smoothing, fault);
  });
  const auto failure = failure_of(check(plan));
  REQUIRE(failure);
  CHECK_THAT(failure->what(),
             ContainsSubstring("the gradient of outputs") && ContainsSubstring("loss of loss (outputs [8, 10]"));
}

TEST_CASE("a right backward of our own raises no alarm") {
  Plan plan = resnet_plan(StemKind::imagenet);
  plant<FaultyBatchNorm>(plan.operations.batch_norm, Fault{"input", unchanged});
  plant<FaultyConvolution>(plan.operations.convolution, Fault{"weight", unchanged});
  plant<FaultyHead>(plan.operations.head, Fault{"weight", unchanged});
  const Report report = check(plan);
  CHECK(report.operations.size() == 21);
  CHECK_FALSE(failure_of(report));
  CHECK_THAT(summary_line(report), ContainsSubstring("gradcheck: 21 operations of trainopt's own checked in float32"));
  for (const auto& row : to_json(report)) {
    CHECK(row["passed"] == true);
    CHECK(row["forward_error"] < row["bound"]);
    CHECK(row["directions_error"] < row["directions_bound"]);
  }
}

TEST_CASE("operations without a backward of our own are not checked") {
  CHECK(check(resnet_plan()).operations.empty());
  Plan plan = resnet_plan();
  plant<FaultyBatchNorm>(plan.operations.batch_norm, Fault{"nothing", unchanged});
  CHECK(check(plan).operations.empty());
  CHECK_THAT(summary_line(check(plan)), ContainsSubstring("no backward of trainopt's own"));
}

TEST_CASE("a computation that gives other bits when repeated points to the hardware") {
  Plan plan = resnet_plan();
  plant<FaultyHead>(plan.operations.head, Fault{"input", [](const at::Tensor& gradient) {
                                                  static int calls = 0;
                                                  return gradient * (++calls % 2 == 1 ? 1.01 : 1.0);
                                                }});
  const auto failure = failure_of(check(plan));
  REQUIRE(failure);
  CHECK(failure->code() == ExitCode::hardware);
  CHECK_THAT(failure->what(), ContainsSubstring("suspect the hardware"));
}

TEST_CASE("central differences find a float64 gradient that is wrong") {
  const Plan plan = resnet_plan();
  const auto model = plan.build_model();
  const auto communicator = make_single_communicator();
  const BuildContext context{.plan = plan,
                             .device = plan.device,
                             .communicator = communicator.get(),
                             .model = model.get(),
                             .replicas = communicator.get()};
  Plan faulty = plan;  // so that its heads are checked
  plant<FaultyHead>(faulty.operations.head, Fault{"input", scaled});
  const auto with = [&](Distortion change) {
    Checked checked{context, plain_parts(0.1), plain_parts(0.1), plan.precision.build(context)};
    checked.ours.operations.head = checked.plain.operations.head =
        std::make_shared<FaultyHead>(Fault{"weight", change});
    const auto cases = operation_cases(CheckedSlots(faulty), context);
    REQUIRE(cases.size() == 1);
    return *check_case(cases[0], checked);
  };
  CHECK(with(unchanged).passed());
  const CheckedCase wrong = with(scaled);
  CHECK(wrong.matches());  // both sides have the same fault
  CHECK(wrong.directions_error > 1e-4);
  CHECK_FALSE(wrong.passed());
}

TEST_CASE("a plan that is checked trains the same bits, and a fault ends the run before the first step") {
  const auto losses = [](const Plan& plan) {
    Rows rows;
    Trainer trainer(plan, {}, rows, never_stopped());
    trainer.run();
    return rows.losses();
  };
  Plan plan = resnet_plan();
  plan.steps = plan.schedule_steps = 2;
  plant<FaultyBatchNorm>(plan.operations.batch_norm, Fault{"weight", unchanged});
  Plan checked = plan;
  add_gradcheck(checked);
  CHECK(losses(checked) == losses(plan));
  REQUIRE(checked.reports.size() == 1);
  CHECK(checked.reports[0].first == "gradcheck");
  CHECK(checked.reports[0].second().size() == 8);

  Plan faulty = resnet_plan();
  plant<FaultyBatchNorm>(faulty.operations.batch_norm, Fault{"weight", scaled});
  add_gradcheck(faulty);
  Rows rows;
  CHECK_THROWS_WITH(
      Trainer(faulty, {}, rows, never_stopped()),
      ContainsSubstring("gradcheck: batch_norm_relu of bn1") && ContainsSubstring("the gradient of weight"));
  CHECK(faulty.reports[0].second().size() == 8);
}
