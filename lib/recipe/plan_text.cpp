#include "recipe/plan_text.h"

#include "base/counted.h"
#include "data/device_dataset.h"
#include "optimizations/sharding/sharding_receipt.h"

namespace trainopt {
namespace {

std::string device_text(const Plan& plan) {
  const Machine& m = plan.machine;
  const std::string hardware =
      plan.device.is_cuda()
          ? fmt::format("{}, sm_{}, {}", m.gpu, m.sm, human_bytes(static_cast<double>(m.gpu_memory_bytes)))
          : fmt::format("{}, {}", m.cpu, counted(plan.process.num_threads.value_or(m.cores), "thread"));
  return fmt::format("{} ({}{}; {})", plan.device.str(), m.assumed ? "assumed " : "", hardware, plan.device_reason);
}

std::string human_flops(double operations) {
  for (const auto& [unit, size] :
       {std::pair{"PFLOP", 1e15}, {"TFLOP", 1e12}, {"GFLOP", 1e9}, {"MFLOP", 1e6}, {"kFLOP", 1e3}})
    if (operations >= size) return fmt::format("{:.2f} {}", operations / size, unit);
  return fmt::format("{:.0f} FLOP", operations);
}

std::string model_text(const ModelPlan& model) {
  return fmt::format("{}, {} parameters ({}), {} a sample forward", word_of(model.config.name),
                     with_commas(model.parameters), human_bytes(4.0 * static_cast<double>(model.parameters)),
                     human_flops(model.flops_per_sample));
}

std::string data_text(const DataPlan& data) {
  const auto image = data.image();
  return fmt::format("{}, {} samples of {}×{}×{}", word_of(data.kind), with_commas(data.samples()), image.channels,
                     image.height, image.width);
}

std::string batch_text(const DataPlan& data) {
  const auto schedule = data.schedule();
  return fmt::format("{} × {} × {} = {} a step, {} an epoch", counted(data.batch_size, "sample"),
                     counted(data.accumulation, "micro-batch", "es"), counted(data.ranks, "rank"),
                     counted(schedule.step_samples(), "sample"), counted(schedule.steps_per_epoch(), "step"));
}

BufferFormat buffers_of(const Plan& plan) {
  return buffer_format(plan.data, plan.loader, plan.tensor_format.memory_format);
}

int64_t resident_bytes(const Plan& plan) { return resident_bytes(buffers_of(plan).size, plan.data.samples()); }

struct LoaderFacts {
  int64_t slots, bytes;
};
LoaderFacts loader_facts(const Plan& plan) {
  const int64_t bytes = batch_bytes(buffers_of(plan), plan.data.batch_size);
  return {slot_count(plan.loader.num_workers, plan.loader.prefetch_factor, bytes, plan.loader.memory_limit), bytes};
}

std::string loader_text(const Plan& plan) {
  const DataPlan& data = plan.data;
  const LoaderSettings& loader = plan.loader;
  if (!data.dataset) return "none: one batch is made on the device and used again and again";
  const std::string readers =
      loader.num_workers == 0 ? "in the training thread" : counted(loader.num_workers, "thread");
  const std::string type = type_name(plan.tensor_format.compute_type);
  if (data.device_dataset)
    return fmt::format("data set on the device: {}, {} as uint8, read once {}{}, batches made as {}",
                       counted(data.samples(), "sample"), human_bytes(static_cast<double>(resident_bytes(plan))),
                       loader.num_workers == 0 ? "" : "by ", readers, type);
  const auto facts = loader_facts(plan);
  const char* delivery = plan.device.is_cpu()  ? "read in place"
                         : loader.non_blocking ? "copied on a second stream"
                                               : "copied before the step";
  const std::string finish = loader.finish_on_device ? fmt::format(", finished on the device as {}", type) : "";
  return fmt::format("{}, {} {}buffers of {} ({}), {}{}", readers, facts.slots, loader.pin_memory ? "page-locked " : "",
                     human_bytes(static_cast<double>(facts.bytes)), loader.finish_on_device ? "uint8" : "float32",
                     delivery, finish);
}

std::string length_text(const Plan& plan) {
  std::string text = plan.steps ? counted(*plan.steps, "step") : std::string("no limit of steps");
  if (plan.train.max_time) text += fmt::format(", {} at most", to_text(*plan.train.max_time));
  return text;
}

std::string evaluation_text(const Plan& plan) {
  if (!plan.evaluation) return "none";
  std::string when = plan.evaluation->at_end ? "at the end" : "";
  if (plan.evaluation->every_n_steps)
    when += fmt::format("{}every {} steps", when.empty() ? "" : " and ", *plan.evaluation->every_n_steps);
  return fmt::format("{} samples, {}", with_commas(plan.evaluation->data.samples()), when.empty() ? "never" : when);
}

std::string checkpoint_text(const Plan& plan) {
  const CheckpointConfig& saving = plan.checkpoint;
  std::string when = saving.every_n_steps ? fmt::format("every {}", counted(*saving.every_n_steps, "step")) : "";
  if (saving.at_end) when += when.empty() ? "at the end" : " and at the end";
  if (when.empty()) return "only when a signal stops the run or asks for one";
  return fmt::format("{}, the last {} {}{}", when, saving.keep_last, saving.keep_last == 1 ? "stays" : "stay",
                     saving.background ? ", written in the background" : "");
}

std::string nonfinite_text(const Plan& plan) {
  switch (plan.train.on_nonfinite) {
    case OnNonfinite::abort:
      return "a loss that is not finite ends the run";
    case OnNonfinite::skip:
      return fmt::format("a step that is not finite is left out, {} at most", plan.train.max_skipped_steps);
    case OnNonfinite::rerun:
      return "a step that is not finite is repeated, to tell a hardware fault from data";
  }
  return "";
}

/// Of the slots of what the model computes with, those that are not plain; all of the trainer's.
std::vector<std::pair<std::string, std::string>> slot_texts(const Plan& plan) {
  std::vector<std::pair<std::string, std::string>> texts;
  const auto add = [&](const auto& slot) { texts.emplace_back(slot.name(), slot.describe()); };
  const auto add_unless_plain = [&](const auto& slot) {
    if (!slot.is_plain()) add(slot);
  };
  add_unless_plain(plan.convolution);
  add_unless_plain(plan.batch_norm);
  add_unless_plain(plan.head);
  add(plan.task);
  add(plan.precision);
  add(plan.parameters);
  add(plan.optimizer);
  add(plan.runner);
  add(plan.average);
  return texts;
}

std::string schedule_text(const Plan& plan) {
  std::string text(word_of(plan.scheduler.name));
  if (plan.scheduler.warmup_steps > 0)
    text += fmt::format(", {} steps of warm-up", with_commas(plan.scheduler.warmup_steps));
  if (plan.scheduler.name != ScheduleKind::constant)
    text += fmt::format(", to 0 at step {}", with_commas(plan.schedule_steps));
  return text;
}

constexpr ShardingStrategy kStrategies[] = {ShardingStrategy::none, ShardingStrategy::zero1, ShardingStrategy::zero2,
                                            ShardingStrategy::zero3};

ShardingCosts costs_of(const Plan& plan, ShardingStrategy strategy) {
  return sharding_costs(strategy, sharded_model(plan, plan.parallel, plan.position.ranks));
}

/// What the ways of dividing the model would cost, the recipe's among them.
std::string sharding_text(const Plan& plan) {
  std::string text =
      fmt::format("dividing the model among {} ranks, by formula; each rank\n  {:<18} {:>16} {:>16} {:>16} {:>16}\n",
                  plan.position.ranks, "", "sends in a step", "parameters", "gradients", "optimizer state");
  for (const auto strategy : kStrategies) {
    const ShardingCosts costs = costs_of(plan, strategy);
    text += fmt::format("  {:<18} {:>16} {:>16} {:>16} {:>16}{}\n", strategy_name(strategy),
                        human_bytes(costs.sent_bytes), human_bytes(costs.parameter_bytes),
                        human_bytes(costs.gradient_bytes), human_bytes(costs.optimizer_bytes),
                        strategy == plan.parallel.sharding_strategy ? "  this recipe" : "");
  }
  return text;
}

}  // namespace

std::string plan_text(const Plan& plan) {
  std::string text;
  const auto line = [&](const std::string& name, const std::string& value) {
    text += fmt::format("  {:<18} {}\n", name, value);
  };
  text += fmt::format("plan of {}\n", plan.name);
  line("device", device_text(plan));
  line("model", model_text(plan.model));
  line("data", data_text(plan.data));
  line("batch", batch_text(plan.data));
  line("loader", loader_text(plan));
  line("length", length_text(plan));
  line("learning rate", schedule_text(plan));
  line("evaluation", evaluation_text(plan));
  line("checkpoints", checkpoint_text(plan));
  line("not finite", nonfinite_text(plan));
  text += "parts of the step\n";
  for (const auto& [name, what] : slot_texts(plan)) line(name, what);
  text += plan.switches.empty() ? "switches: none is on\n" : "switches\n";
  for (const auto& entry : plan.switches)
    line(entry.name, (entry.outcome.has_effect ? "" : "no effect: ") + entry.outcome.text);
  if (plan.position.ranks > 1) text += sharding_text(plan);
  for (const auto& note : plan.notes) text += fmt::format("note: {}\n", note);
  return text;
}

Json plan_json(const Plan& plan) {
  const auto image = plan.data.image();
  const auto schedule = plan.data.schedule();
  Json json = {{"schema_version", 1}, {"name", plan.name}};
  json["device"] = {
      {"name", plan.device.str()},       {"reason", plan.device_reason},
      {"assumed", plan.machine.assumed}, {"gpus", plan.machine.gpus},
      {"sm", plan.machine.sm},           {"gpu_memory_bytes", plan.machine.gpu_memory_bytes},
      {"cpu", plan.machine.cpu},         {"threads", plan.process.num_threads.value_or(plan.machine.cores)}};
  json["model"] = {{"name", word_of(plan.model.config.name)},
                   {"parameters", plan.model.parameters},
                   {"flops_per_sample", plan.model.flops_per_sample}};
  json["data"] = {{"dataset", word_of(plan.data.kind)},
                  {"samples", plan.data.samples()},
                  {"image", {image.channels, image.height, image.width}},
                  {"batch_size", plan.data.batch_size},
                  {"gradient_accumulation_steps", plan.data.accumulation},
                  {"ranks", plan.data.ranks},
                  {"global_batch_size", schedule.step_samples()},
                  {"steps_per_epoch", schedule.steps_per_epoch()}};
  if (plan.data.device_dataset) {
    json["loader"] = {{"num_workers", plan.loader.num_workers},
                      {"resident_samples", plan.data.samples()},
                      {"resident_bytes", resident_bytes(plan)}};
  } else if (plan.data.dataset) {
    const auto facts = loader_facts(plan);
    json["loader"] = {{"num_workers", plan.loader.num_workers},
                      {"buffers", facts.slots},
                      {"buffer_bytes", facts.bytes},
                      {"pinned", plan.loader.pin_memory},
                      {"non_blocking", plan.loader.non_blocking}};
  }
  json["steps"] = plan.steps ? Json(*plan.steps) : Json();
  json["scheduler"] = schedule_text(plan);
  json["evaluation"] = plan.evaluation ? Json{{"samples", plan.evaluation->data.samples()}} : Json();
  json["checkpoints"] = checkpoint_text(plan);
  json["on_nonfinite"] = nonfinite_text(plan);
  for (const auto& [name, what] : slot_texts(plan)) json["slots"][name] = what;
  for (const auto strategy : kStrategies) {
    if (plan.position.ranks == 1) break;
    const ShardingCosts costs = costs_of(plan, strategy);
    json["sharding"][std::string(word_of(strategy))] = {{"sent_bytes", costs.sent_bytes},
                                                        {"parameter_bytes", costs.parameter_bytes},
                                                        {"gradient_bytes", costs.gradient_bytes},
                                                        {"optimizer_bytes", costs.optimizer_bytes}};
  }
  json["switches"] = Json::array();
  for (const auto& entry : plan.switches)
    json["switches"].push_back({{"name", entry.name},
                                {"requested", entry.requested},
                                {"effective", entry.outcome.has_effect},
                                {"text", entry.outcome.text}});
  json["notes"] = plan.notes;
  return json;
}

}  // namespace trainopt
