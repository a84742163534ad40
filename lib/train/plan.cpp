#include "train/plan.h"

namespace trainopt {

static_assert(kIgnoredTarget == kNoTarget);  // the model's value and the data's

Plan::Plan(const Plan&) = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(const Plan&) = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

Plan::Plan(Machine machine_, at::Device device_, OptimizerConfig optimizer_config_)
    : machine(std::move(machine_)),
      device(device_),
      optimizer_config(std::move(optimizer_config_)),
      task("task", "classification: cross entropy",
           [](const BuildContext& context) {
             return std::make_unique<ClassificationTask>(context.plan.train.label_smoothing);
           }),
      precision("precision", "float32", [](const BuildContext&) { return std::make_unique<FullPrecision>(); }),
      parameters("parameters", "all on this rank",
                 [](const BuildContext& context) {
                   return std::make_unique<LocalParameters>(*context.model, context.plan.clear_gradients);
                 }),
      optimizer("optimizer", describe_optimizer(optimizer_config) + ", one parameter after another",
                [](const BuildContext& context) {
                  return make_loop_optimizer(context.plan.optimizer_config, *context.parameters,
                                             context.plan.parameter_settings, context.plan.rounding.build(context));
                }),
      rounding("rounding", "to nearest", [](const BuildContext&) { return std::make_unique<NearestRounding>(); }),
      runner("runner", "eager", [](const BuildContext&) { return std::make_unique<EagerRunner>(); }),
      average("average", "none", [](const BuildContext&) { return std::make_unique<NoAverage>(); }),
      profiler("profiler", "off", [](const BuildContext&) { return std::make_unique<StepProfiler>(); }) {}

void ModelPlan::describe(const Model& network) {
  parameters = network.parameter_count();
  flops_per_sample = network.flops_per_sample();
  layers = network.layer_counts();
}

Schedule Plan::schedule() const {
  return {scheduler, base_learning_rate(optimizer_config), schedule_steps, data.schedule().steps_per_epoch()};
}

std::unique_ptr<Model> Plan::build_model(bool is_resumed) const {
  ModelConfig config = model.config;
  if (is_resumed) config.weights.reset();
  auto built = std::make_unique<Model>(model.make(config, model.input, device, seed, stages.held()));
  if (tensor_format.memory_format != at::MemoryFormat::Contiguous) built->to_memory_format(tensor_format.memory_format);
  built->to_type(model.in_bfloat16, at::kBFloat16);
  for (const auto& wrap : wrap_model) wrap(*built);
  return built;
}

std::unique_ptr<BatchSource> Plan::open_batches(const DataPlan& from, const StepRange& range,
                                                std::vector<RefusedSample> refused) const {
  auto batches = make_batches(
      from, loader, {.device = device, .format = tensor_format, .steps = range, .refused = std::move(refused)});
  return from.wrap_batches ? from.wrap_batches(std::move(batches)) : std::move(batches);
}

void DataPlan::require_identity(const DataIdentity& stored) const {
  if (const auto difference = first_difference(stored, identity()))
    throw UserError(fmt::format("the data is not what the checkpoint was trained on: {}", *difference), ExitCode::data);
}

Json to_json(const DataIdentity& identity) {
  return {{"kind", identity.kind},       {"samples", identity.samples}, {"classes", identity.classes},
          {"content", identity.content}, {"blocks", identity.blocks},   {"versions", identity.versions}};
}

DataIdentity identity_from(const Json& json) {
  return {.kind = json.at("kind").get<std::string>(),
          .samples = json.at("samples").get<int64_t>(),
          .classes = json.at("classes").get<int64_t>(),
          .content = json.at("content").get<std::string>(),
          .blocks = json.value("blocks", ""),  // older checkpoints lack these two
          .versions = json.value("versions", "")};
}

InputShape DataPlan::input_shape() const {
  if (is_text()) return {.channels = 0, .height = 0, .width = 0, .tokens = context};
  const ImageSize size = image_size();
  return {3, size.height, size.width};
}

}  // namespace trainopt
