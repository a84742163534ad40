#include "recipe/plan_text.h"

#include <limits>

namespace trainopt {
namespace {

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string device_text(const Plan& plan) {
  const Machine& m = plan.machine;
  const std::string hardware = plan.device.is_cuda() ? fmt::format("{}, sm_{}, {}", m.gpu, m.sm, human_bytes(static_cast<double>(m.gpu_memory_bytes)))
                                                     : fmt::format("{}, {} threads", m.cpu, plan.process.num_threads.value_or(m.cores));
  return fmt::format("{} ({}{}; {})", plan.device.str(), m.assumed ? "assumed " : "", hardware, plan.device_reason);
}

std::string model_text(const ModelPlan& model) {
  return fmt::format("{}, {} parameters ({}), {:.3g} GFLOP a sample forward", word_of(model.config.name), with_commas(model.parameters),
                     human_bytes(4.0 * static_cast<double>(model.parameters)), model.flops_per_sample / 1e9);
}

std::string data_text(const DataPlan& data) {
  const auto image = data.image();
  return fmt::format("{}, {} samples of {}×{}×{}", word_of(data.config.dataset), with_commas(data.samples()), image.channels, image.height, image.width);
}

std::string batch_text(const DataPlan& data) {
  const auto schedule = data.schedule();
  return fmt::format("{} samples × {} micro-batch{} × {} rank = {} a step, {} steps an epoch", data.config.batch_size, data.options.accumulation,
                     data.options.accumulation == 1 ? "" : "es", data.options.ranks, schedule.step_samples(), with_commas(schedule.steps_per_epoch()));
}

struct LoaderFacts {
  int64_t slots, bytes;
};
LoaderFacts loader_facts(const DataPlan& data) {
  const int64_t bytes = batch_bytes(slot_format(data.config, *data.dataset, data.options), data.config.batch_size);
  return {slot_count(data.config.num_workers, data.config.prefetch_factor, bytes, data.config.memory_limit.count), bytes};
}

std::string loader_text(const DataPlan& data) {
  if (!data.dataset) return "none: one batch is made on the device and used again and again";
  const auto facts = loader_facts(data);
  return fmt::format("{}, {} {}buffers of {} ({}), copied {}", data.config.num_workers == 0 ? "in the training thread" : fmt::format("{} threads", data.config.num_workers),
                     facts.slots, data.config.pin_memory ? "page-locked " : "", human_bytes(static_cast<double>(facts.bytes)),
                     data.options.device_preprocess ? "uint8" : "float32", data.config.non_blocking ? "on a second stream" : "before the step");
}

bool has_end(const Plan& plan) { return plan.steps != std::numeric_limits<int64_t>::max(); }

std::string length_text(const Plan& plan) {
  std::string text = has_end(plan) ? fmt::format("{} steps", with_commas(plan.steps)) : std::string("no limit of steps");
  if (plan.train.max_time) text += fmt::format(", {} at most", to_text(*plan.train.max_time));
  return text;
}

std::string evaluation_text(const Plan& plan) {
  if (!plan.evaluation) return "none";
  std::string when = plan.evaluation->at_end ? "at the end" : "";
  if (plan.evaluation->every_n_steps) when += fmt::format("{}every {} steps", when.empty() ? "" : " and ", *plan.evaluation->every_n_steps);
  return fmt::format("{} samples, {}", with_commas(plan.evaluation->data.samples()), when.empty() ? "never" : when);
}

std::vector<std::pair<std::string, std::string>> slot_texts(const Plan& plan) {
  return {{plan.task.name(), plan.task.describe()},           {plan.precision.name(), plan.precision.describe()},
          {plan.parameters.name(), plan.parameters.describe()}, {plan.optimizer.name(), plan.optimizer.describe()},
          {plan.runner.name(), plan.runner.describe()},       {plan.average.name(), plan.average.describe()}};
}

std::string schedule_text(const Plan& plan) {
  std::string text(word_of(plan.scheduler.name));
  if (plan.scheduler.warmup_steps > 0) text += fmt::format(", {} steps of warm-up", with_commas(plan.scheduler.warmup_steps));
  if (plan.scheduler.name != ScheduleKind::constant) text += fmt::format(", to 0 at step {}", with_commas(plan.schedule_steps));
  return text;
}

}  // namespace

std::string plan_text(const Plan& plan) {
  std::string text;
  const auto line = [&](const std::string& name, const std::string& value) { text += fmt::format("  {:<18} {}\n", name, value); };
  text += fmt::format("plan of {}\n", plan.name);
  line("device", device_text(plan));
  line("model", model_text(plan.model));
  line("data", data_text(plan.data));
  line("batch", batch_text(plan.data));
  line("loader", loader_text(plan.data));
  line("length", length_text(plan));
  line("learning rate", schedule_text(plan));
  line("evaluation", evaluation_text(plan));
  text += "slots\n";
  for (const auto& [name, what] : slot_texts(plan)) line(name, what);
  text += plan.switches.empty() ? "switches: none is on\n" : "switches\n";
  for (const auto& entry : plan.switches) line(entry.name, (entry.outcome.has_effect ? "" : "no effect: ") + entry.outcome.text);
  for (const auto& note : plan.notes) text += fmt::format("note: {}\n", note);
  return text;
}

Json plan_json(const Plan& plan) {
  const auto image = plan.data.image();
  const auto schedule = plan.data.schedule();
  Json json = {{"schema_version", 1}, {"name", plan.name}};
  json["device"] = {{"name", plan.device.str()}, {"reason", plan.device_reason}, {"assumed", plan.machine.assumed}, {"gpus", plan.machine.gpus},
                    {"sm", plan.machine.sm}, {"gpu_memory_bytes", plan.machine.gpu_memory_bytes}, {"cpu", plan.machine.cpu},
                    {"threads", plan.process.num_threads.value_or(plan.machine.cores)}};
  json["model"] = {{"name", word_of(plan.model.config.name)}, {"parameters", plan.model.parameters}, {"flops_per_sample", plan.model.flops_per_sample}};
  json["data"] = {{"dataset", word_of(plan.data.config.dataset)}, {"samples", plan.data.samples()}, {"image", {image.channels, image.height, image.width}},
                  {"batch_size", plan.data.config.batch_size}, {"gradient_accumulation_steps", plan.data.options.accumulation}, {"ranks", plan.data.options.ranks},
                  {"global_batch_size", schedule.step_samples()}, {"steps_per_epoch", schedule.steps_per_epoch()}};
  if (plan.data.dataset) {
    const auto facts = loader_facts(plan.data);
    json["loader"] = {{"num_workers", plan.data.config.num_workers}, {"buffers", facts.slots}, {"buffer_bytes", facts.bytes},
                      {"pinned", plan.data.config.pin_memory}, {"non_blocking", plan.data.config.non_blocking}};
  }
  json["steps"] = has_end(plan) ? Json(plan.steps) : Json();
  json["scheduler"] = schedule_text(plan);
  json["evaluation"] = plan.evaluation ? Json{{"samples", plan.evaluation->data.samples()}} : Json();
  for (const auto& [name, what] : slot_texts(plan)) json["slots"][name] = what;
  json["switches"] = Json::array();
  for (const auto& entry : plan.switches)
    json["switches"].push_back({{"name", entry.name}, {"requested", entry.requested}, {"effective", entry.outcome.has_effect}, {"text", entry.outcome.text}});
  json["notes"] = plan.notes;
  return json;
}

}  // namespace trainopt
