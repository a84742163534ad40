#include "train/plan.h"

namespace trainopt {

Plan::Plan(Machine machine_, at::Device device_, OptimizerConfig optimizer_config_)
    : machine(std::move(machine_)),
      device(device_),
      optimizer_config(std::move(optimizer_config_)),
      convolution("convolution", "libtorch's",
                  [](const BuildContext&) { return std::make_unique<PlainConvolutionOperations>(); }),
      batch_norm("batch-norm", "libtorch's",
                 [](const BuildContext&) { return std::make_unique<PlainBatchNormOperations>(); }),
      head("head", "average pool and linear layer, one after the other",
           [](const BuildContext&) { return std::make_unique<PlainHeadOperations>(); }),
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
                  return make_loop_optimizer(context.plan.optimizer_config, *context.parameters);
                }),
      runner("runner", "eager", [](const BuildContext&) { return std::make_unique<EagerRunner>(); }),
      average("average", "none", [](const BuildContext&) { return std::make_unique<NoAverage>(); }) {}

Operations Plan::build_operations(const BuildContext& context) const {
  return {.convolution = convolution.build(context),
          .batch_norm = batch_norm.build(context),
          .head = head.build(context)};
}

std::unique_ptr<Model> ModelPlan::build(at::Device device, uint64_t seed) const {
  auto model = std::make_unique<Model>(make_model(config, input, device, seed));
  if (memory_format != at::MemoryFormat::Contiguous) model->to_memory_format(memory_format);
  return model;
}

int64_t DataPlan::samples() const { return dataset ? dataset->size() : config.size; }

DataIdentity DataPlan::identity() const {
  return dataset ? dataset->identity()
                 : DataIdentity{.kind = std::string(word_of(config.dataset)),
                                .samples = config.size,
                                .classes = options.num_classes,
                                .content = ""};
}

void DataPlan::require_identity(const DataIdentity& stored) const {
  if (const auto difference = first_difference(stored, identity()))
    throw UserError(fmt::format("the data is not what the checkpoint was trained on: {}", *difference), ExitCode::data);
}

Json to_json(const DataIdentity& identity) {
  return {{"kind", identity.kind},
          {"samples", identity.samples},
          {"classes", identity.classes},
          {"content", identity.content}};
}

Json to_json(const RefusedSample& sample) {
  return {{"sample", sample.sample}, {"name", sample.name}, {"reason", sample.reason}};
}

Json to_json(const std::vector<RefusedSample>& samples) {
  Json all = Json::array();
  for (const auto& sample : samples) all.push_back(to_json(sample));
  return all;
}

RefusedSample refused_sample_from(const Json& json) {
  return {.sample = json.at("sample").get<int64_t>(),
          .name = json.at("name").get<std::string>(),
          .reason = json.at("reason").get<std::string>()};
}

DataIdentity identity_from(const Json& json) {
  return {.kind = json.at("kind").get<std::string>(),
          .samples = json.at("samples").get<int64_t>(),
          .classes = json.at("classes").get<int64_t>(),
          .content = json.at("content").get<std::string>()};
}

InputShape DataPlan::image() const {
  if (!dataset) return {3, config.image_size, config.image_size};
  BatchesOptions on_host = options;  // wherever the transforms happen, they give the same size
  on_host.device_preprocess = on_host.device_resize = false;
  DataConfig loaded = config;
  loaded.cache = CacheKind::none;
  const auto size = buffer_format(loaded, *dataset, on_host).size;
  return {3, size.height, size.width};
}

std::unique_ptr<BatchSource> DataPlan::open(at::Device device, std::optional<int64_t> end_step, int64_t first_step,
                                            std::vector<RefusedSample> refused) const {
  BatchesOptions with_device = options;
  with_device.device = device;
  with_device.end_step = end_step;
  with_device.first_step = first_step;
  with_device.refused = std::move(refused);
  auto batches = make_batches(config, dataset, with_device);
  return around ? around(std::move(batches)) : std::move(batches);
}

}  // namespace trainopt
