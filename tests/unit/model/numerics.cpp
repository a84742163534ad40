// Forward, backward and running statistics compared with torchvision 0.26. The expected values were computed in float64
// with weights and inputs from the same formula.
#include "filled.h"
#include "model/task.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

/// Logits 0, 1, 2, 7, 10, 19 of two samples with ten classes, and the results of one backward pass of the smoothed
/// loss.
struct Expected {
  ModelKind kind;
  StemKind stem;
  int64_t side;
  std::vector<double> evaluation, training;
  double loss;
  std::vector<double> gradients;  // sums of absolute values, in the order of kGradients
  double first_mean, last_variance;
};
const std::vector<std::string> kGradients{"conv1.weight", "bn1.weight", "layer2.0.downsample.0.weight",
                                          "layer4.0.bn1.bias", "fc.weight"};
const std::vector<Expected> kExpected{
    {ModelKind::resnet18,
     StemKind::imagenet,
     64,
     {-0.4557751207254619, 1.2626084830927629, 0.12088710686818538, -0.26587058738305175, -0.23786310730138774,
      -0.28680719274351596},
     {0.08927573042775364, 0.4562173141977765, 0.49698647958947473, 0.68891627978551, 0.4064947495353585,
      0.098977932552615},
     2.3915032367789606,
     {4015.7731321660476, 6.660080703967209, 244.12468022311282, 3.073361860631353, 593.1829328305288},
     2.9088695914884717,
     503.25200988583106},
    {ModelKind::resnet50,
     StemKind::imagenet,
     64,
     {3.3431167461544424, 5.53009205915616, 13.945790762097914, 13.15890546353458, 2.6076364527913256,
      10.87469375564468},
     {-0.03782146083753038, -0.07465280681026554, 0.7111291584987076, 0.6650594757655042, 0.49040596659080715,
      0.21326950798234778},
     2.531536312548714,
     {239150.83768287004, 354.0482301280057, 44413.51866562148, 9.677577228317418, 3241.766085692638},
     2.9088695914884717,
     974.5971957442952},
    {ModelKind::resnet18,
     StemKind::cifar,
     32,
     {0.22562410241610653, 1.198176076830027, 0.11513366892405397, -0.19995514863394698, 0.17461568307690806,
      -0.4317889447933899},
     {0.01907394684958011, 0.5095660368462295, -0.15544855255360113, 0.297710946826843, 0.46301101886599383,
      0.06470390569123524},
     2.1818214864948255,
     {312.4369491830798, 3.451956738642685, 106.118557439824, 1.1438220401175978, 583.4092436746821},
     2.914937378614442,
     510.0623834609671}};

Model filled_model(const Expected& expected) {
  Model model = make_model({.name = expected.kind, .num_classes = 10, .stem = expected.stem},
                           {3, expected.side, expected.side}, at::kCPU, 0);
  fill_by_formula(model);
  return model;
}

void to_double(const Model& model) {
  const at::NoGradGuard no_grad;
  for (auto [name, tensor] : model.state())
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(at::kDouble));
}

void check_logits(const at::Tensor& outputs, const std::vector<double>& expected, double tolerance) {
  const at::Tensor flat = outputs.detach().to(at::kDouble).flatten();
  size_t i = 0;
  for (const int64_t index : {0, 1, 2, 7, 10, 19})
    CHECK(flat[index].item<double>() == Approx(expected[i++]).epsilon(0).margin(tolerance));
}

}  // namespace

TEST_CASE("resnets agree with torchvision in forward, backward and running statistics") {
  const at::Tensor target = at::tensor({3, 7}, at::kLong);
  const ClassificationTask task(0.1);
  for (const auto& expected : kExpected) {
    INFO(word_of(expected.kind) << " " << word_of(expected.stem));
    const at::Tensor input = input_by_formula({2, 3, expected.side, expected.side});
    {
      Model model = filled_model(expected);
      check_logits(model.forward(input, {}), expected.evaluation, expected.kind == ModelKind::resnet50 ? 1e-3 : 1e-4);
    }
    // In float64, rounding cannot hide an error.
    Model model = filled_model(expected);
    to_double(model);
    check_logits(model.forward(input.to(at::kDouble), {}), expected.evaluation, 1e-9);
    const auto [loss, outputs] = task.loss(model, input.to(at::kDouble), target, {.training = true});
    check_logits(outputs, expected.training, 1e-9);
    CHECK(loss.item<double>() == Approx(expected.loss).epsilon(1e-6));
    loss.backward();
    std::map<std::string, at::Tensor> state;
    for (const auto& [name, tensor] : model.state()) state[name] = tensor;
    for (size_t i = 0; i < kGradients.size(); ++i)
      CHECK(state[kGradients[i]].grad().abs().sum().item<double>() == Approx(expected.gradients[i]).epsilon(1e-5));
    CHECK(state["bn1.running_mean"].abs().sum().item<double>() == Approx(expected.first_mean).epsilon(1e-9));
    CHECK(state["layer4.0.bn1.running_var"].sum().item<double>() == Approx(expected.last_variance).epsilon(1e-9));
    for (const auto& [name, tensor] : model.buffers())
      if (name.ends_with("num_batches_tracked")) CHECK(tensor.item<int64_t>() == 1);
  }
}

TEST_CASE("converting to channels-last keeps the parameter tensors and the results") {
  Model plain = filled_model(kExpected[0]), model = filled_model(kExpected[0]);
  const auto before = model.parameters();
  model.to_memory_format(at::MemoryFormat::ChannelsLast);
  const at::Tensor input = input_by_formula({2, 3, 64, 64});
  const at::Tensor output = model.forward(input.contiguous(at::MemoryFormat::ChannelsLast), {.training = true});
  CHECK(at::allclose(output, plain.forward(input, {.training = true}), 1e-4, 1e-4));
  output.sum().backward();
  const auto after = model.parameters();
  for (size_t i = 0; i < before.size(); ++i) {
    REQUIRE(before[i].second.is_same(after[i].second));
    REQUIRE(after[i].second.grad().defined());
    if (after[i].second.dim() == 4) CHECK(after[i].second.is_contiguous(at::MemoryFormat::ChannelsLast));
  }
  CHECK(at::equal(plain.parameters()[0].second, model.parameters()[0].second));
}
