#include "debugging/gradcheck/operation_cases.h"

#include "debugging/gradcheck/recording_operations.h"
#include "device/meta_device.h"
#include "device/tensor.h"

namespace trainopt::gradcheck {
namespace {

/// A network whose output is its input: the loss alone.
class Unchanged : public Unit {
 public:
  explicit Unchanged(Builder&) {}
  std::string name() const override { return "unchanged"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext&) override { return input; }
  SampleShape shape_after(const SampleShape& input, double&) const override { return input; }
};

GradientCase loss_case(int64_t batch, int64_t classes) {
  GradientCase found;
  found.operation = found.layer = "loss";
  found.inputs = {{"outputs", {batch, classes}, true}};
  found.output_values = 1;
  found.fixed_terms = classes;
  found.compute = [classes](const Parts& parts, const Tensors& x) {
    Builder builder(x[0].device(), 0);
    builder.add<Unchanged>();
    Model unchanged(std::move(builder), {classes});
    const int64_t samples = x[0].size(0);
    const at::Tensor target = at::arange(samples, x[0].options().dtype(at::kLong).requires_grad(false)) % classes;
    // The sum over the batch: float16 could not hold the gradients of the mean.
    return parts.task->loss(unchanged, x[0], target, {.training = true}).loss * samples;
  };
  return found;
}

/// One case stands for all copies, because they differ only in their sizes.
std::vector<GradientCase> copy_cases(Model& model, at::ScalarType type) {
  GradientCase found;
  found.operation = "weight_copy";
  found.calls = 0;
  const auto copies = model.weight_copies();
  const NamedTensors parameters = model.parameters();
  for (size_t i = 0; i < copies.size(); ++i)
    if (copies[i] && copies[i]->defined() && found.calls++ == 0) {
      found.layer = parameters[i].first.substr(0, parameters[i].first.rfind('.'));
      found.inputs = {{"parameter", copies[i]->sizes().vec()}};
    }
  if (found.calls == 0) return {};
  found.output_values = c10::multiply_integers(found.inputs[0].sizes);
  found.compute = [type](const Parts&, const Tensors& x) {
    return as_autocast(x[0], std::make_shared<at::Tensor>(x[0].detach().to(type)));
  };
  return {found};
}

}  // namespace

std::vector<GradientCase> operation_cases(const CheckedSlots& slots, const BuildContext& context) {
  const at::NoGradGuard no_grad;
  const Plan& plan = context.plan;
  open_meta_device();  // for operations that are no slots
  Model model = plan.model.shapes();
  RecordedCases cases(model, plan.parallel.sync_batch_norm);
  record_operations(model, slots.operations, cases);
  const ShapeOfBatch batch = shape_of_batch(plan.model.input, plan.data.batch_size);
  // Not in training: dropout, which has no backward of its own, would draw random numbers.
  model.forward(batch.input, {.target = batch.target});
  std::vector<GradientCase> all = cases.take();
  if (!slots.task.is_plain()) all.push_back(loss_case(plan.data.batch_size, model.output_shape().front()));
  for (auto& copies : copy_cases(*context.model, plan.tensor_format.compute_type)) all.push_back(std::move(copies));
  return all;
}

}  // namespace trainopt::gradcheck
