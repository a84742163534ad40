#include "recipe/plan_text.h"

#include "base/bar_plot.h"
#include "base/units.h"
#include "data/formats/text/text_dataset.h"
#include "data/on_device/device_dataset.h"
#include "recipe/plan_machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

/// One line of the printed plan and its JSON form.
struct Fact {
  const char* name;
  std::string text;
  const char* key;  ///< in the JSON; facts with the same key share an object
  Json json;        ///< if an empty object, the key is omitted
};

Fact device_fact(const Plan& plan) {
  const Machine& m = plan.machine;
  const int threads = plan.process.num_threads.value_or(m.cores);
  const std::string hardware = plan.device.is_cuda() ? fmt::format("{}, sm_{}, {}", m.gpu, m.sm,
                                                                   human_bytes(static_cast<double>(m.gpu_memory_bytes)))
                                                     : fmt::format("{}, {}", m.cpu, counted(threads, "thread"));
  return {"device",
          fmt::format("{} ({}{}; {})", plan.device.str(), m.assumed ? "assumed " : "", hardware, plan.device_reason),
          "device",
          {{"name", plan.device.str()},
           {"reason", plan.device_reason},
           {"assumed", m.assumed},
           {"gpus", m.gpus},
           {"sm", m.sm},
           {"gpu_memory_bytes", m.gpu_memory_bytes},
           {"cpu", m.cpu},
           {"threads", threads}}};
}

}  // namespace

std::string human_flops(double operations) {
  for (const auto& [unit, size] :
       {std::pair{"PFLOP", 1e15}, {"TFLOP", 1e12}, {"GFLOP", 1e9}, {"MFLOP", 1e6}, {"kFLOP", 1e3}})
    if (operations >= size) return fmt::format("{:.2f} {}", operations / size, unit);
  return fmt::format("{:.0f} FLOP", operations);
}

namespace {

Fact model_fact(const ModelPlan& model) {
  const auto name = word_of(model.config.name);
  return {"model",
          fmt::format("{}, {} parameters ({}), {} per sample (forward)", name, with_commas(model.parameters),
                      human_bytes(4.0 * static_cast<double>(model.parameters)), human_flops(model.flops_per_sample)),
          "model",
          {{"name", name}, {"parameters", model.parameters}, {"flops_per_sample", model.flops_per_sample}}};
}

Fact text_fact(const DataPlan& data) {
  const auto name = word_of(data.kind);
  const auto text = data.text();
  const bool differ = text && !text->uniform_tokens();
  std::string words = fmt::format("{}, {} of {}{}", name, counted(data.samples(), "sample"), differ ? "up to " : "",
                                  counted(text ? text->longest() : data.context, "token"));
  if (text) words += ", " + text->summary();
  if (differ) words += fmt::format(", padding: {}", word_of(data.padding));
  return {"data", words, "data", {{"dataset", name}, {"samples", data.samples()}, {"context", data.context}}};
}

Fact data_fact(const DataPlan& data) {
  if (data.is_text()) return text_fact(data);
  const auto name = word_of(data.kind);
  const auto image = data.input_shape();
  const ImageDataset* images = data.images();
  const std::string classes =
      images && !images->class_names().empty()
          ? fmt::format("; {}: {}", counted(images->num_classes(), "class", "es"), first_of(images->class_names()))
          : "";
  return {"data",
          fmt::format("{}, {} samples of {}×{}×{}{}", name, with_commas(data.samples()), image.channels, image.height,
                      image.width, classes),
          "data",
          {{"dataset", name}, {"samples", data.samples()}, {"image", {image.channels, image.height, image.width}}}};
}

Fact batch_fact(const DataPlan& data) {
  const auto schedule = data.schedule();
  return {"batch",
          fmt::format("{} × {} × {} = {} per step, {} per epoch", counted(data.batch_size, "sample"),
                      counted(data.accumulation, "micro-batch", "es"), counted(data.ranks, "rank"),
                      counted(schedule.step_samples(), "sample"), counted(schedule.steps_per_epoch(), "step")),
          "data",
          {{"batch_size", data.batch_size},
           {"gradient_accumulation_steps", data.accumulation},
           {"ranks", data.ranks},
           {"global_batch_size", schedule.step_samples()},
           {"steps_per_epoch", schedule.steps_per_epoch()}}};
}

BufferFormat buffers_of(const Plan& plan) {
  return buffer_format(plan.data, plan.loader, plan.tensor_format.memory_format);
}

/// The loader's line for a data set that is cached on the device.
Fact resident_fact(const Plan& plan, const std::string& readers) {
  const int64_t samples = plan.data.samples(), bytes = resident_bytes(buffers_of(plan).size, samples);
  return {"loader",
          fmt::format("data set cached on the device: {}, {} as uint8, read once {}{}, batches built as {}",
                      counted(samples, "sample"), human_bytes(static_cast<double>(bytes)),
                      plan.loader.num_workers == 0 ? "" : "by ", readers, type_name(plan.tensor_format.compute_type)),
          "loader",
          {{"num_workers", plan.loader.num_workers}, {"resident_samples", samples}, {"resident_bytes", bytes}}};
}

Fact buffers_fact(const Plan& plan, const std::string& readers) {
  const LoaderSettings& loader = plan.loader;
  const int64_t bytes = batch_bytes(buffers_of(plan), plan.data.schedule().largest_items());
  const int64_t buffers = slot_count(loader.num_workers, loader.prefetch_factor, bytes, loader.memory_limit);
  const char* delivery = plan.device.is_cpu()  ? "read in place"
                         : loader.non_blocking ? "copied on a second stream"
                                               : "copied before the step";
  const char* type = plan.data.is_text() ? "int64" : loader.finish_on_device ? "uint8" : "float32";
  const std::string finish = loader.finish_on_device ? fmt::format(", converted on the device to {}",
                                                                   type_name(plan.tensor_format.compute_type))
                                                     : "";
  return {"loader",
          fmt::format("{}, {} {}buffers of {} ({}), {}{}", readers, buffers, loader.pin_memory ? "page-locked " : "",
                      human_bytes(static_cast<double>(bytes)), type, delivery, finish),
          "loader",
          {{"num_workers", loader.num_workers},
           {"buffers", buffers},
           {"buffer_bytes", bytes},
           {"pinned", loader.pin_memory},
           {"non_blocking", loader.non_blocking}}};
}

Fact loader_fact(const Plan& plan) {
  if (!plan.data.dataset)
    return {"loader", "none: one batch is created on the device and reused in every step", "loader", Json::object()};
  const int64_t workers = plan.loader.num_workers;
  const std::string readers = workers == 0 ? "in the training thread" : counted(workers, "thread");
  return plan.data.device_dataset ? resident_fact(plan, readers) : buffers_fact(plan, readers);
}

Fact length_fact(const Plan& plan) {
  std::string text = plan.steps ? counted(*plan.steps, "step") : std::string("no step limit");
  if (plan.train.max_time) text += fmt::format(", at most {}", to_text(*plan.train.max_time));
  return {"length", text, "steps", plan.steps ? Json(*plan.steps) : Json()};
}

std::string schedule_text(const Plan& plan) {
  std::string text(name_of(plan.scheduler));
  if (plan.scheduler.warmup_steps > 0)
    text += fmt::format(", {} warm-up steps", with_commas(plan.scheduler.warmup_steps));
  const int64_t samples = plan.data.schedule().step_samples();
  if (const auto& common = common_of(plan.optimizer_config); common.lr_scaling != LrScaling::none)
    text += fmt::format(", lr × {:.4g} for {} samples per step instead of {} ({})",
                        learning_rate_factor(plan.optimizer_config, samples), with_commas(samples),
                        with_commas(common.reference_batch.value()), word_of(common.lr_scaling));
  if (plan.scheduler.interval == ScheduleInterval::epoch) text += ", by epochs";
  if (end_of(plan.scheduler))
    text += fmt::format(", reaching {:.3g} at step {}", plan.schedule().at(plan.schedule_steps + 1).learning_rate,
                        with_commas(plan.schedule_steps));
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
  if (when.empty()) return "only when a signal requests one or stops the run";
  const std::string kept = !saving.keep_last ? "all are kept"
                                             : fmt::format("the last {} {}", *saving.keep_last,
                                                           *saving.keep_last == 1 ? "is kept" : "are kept");
  return fmt::format("{}, {}{}", when, kept, saving.background ? ", written in the background" : "");
}

std::string nonfinite_text(const Plan& plan) {
  switch (plan.train.on_nonfinite) {
    case OnNonfinite::abort:
      return "a non-finite loss ends the run";
    case OnNonfinite::skip:
      return fmt::format("non-finite steps are skipped, at most {}", plan.train.max_skipped_steps);
    case OnNonfinite::rerun:
      return "a non-finite step is rerun, to tell a hardware fault from bad data";
  }
  return "";
}

std::vector<Fact> facts(const Plan& plan) {
  const std::string schedule = schedule_text(plan), checkpoints = checkpoint_text(plan),
                    nonfinite = nonfinite_text(plan);
  std::vector<Fact> all{device_fact(plan),
                        model_fact(plan.model),
                        data_fact(plan.data),
                        batch_fact(plan.data),
                        loader_fact(plan),
                        length_fact(plan),
                        {"learning rate", schedule, "scheduler", schedule},
                        {"evaluation", evaluation_text(plan), "evaluation",
                         plan.evaluation ? Json{{"samples", plan.evaluation->data.samples()}} : Json()},
                        {"checkpoints", checkpoints, "checkpoints", checkpoints},
                        {"non-finite", nonfinite, "on_nonfinite", nonfinite}};
  if (plan.memory) all.push_back({"memory", forecast_text(plan), "memory", forecast_json(*plan.memory)});
  if (plan.parallel.check_replicas_every > 0)
    all.push_back({"replicas", replicas_text(plan), "replicas", replicas_text(plan)});
  if (const auto variables = nccl_variables_of(plan); !variables.empty())
    all.push_back({"NCCL", fmt::format("{}", fmt::join(variables, " ")), "nccl", variables});
  return all;
}

/// The model's operation slots that are not plain, and all slots of the trainer.
std::vector<std::pair<std::string, std::string>> slot_texts(const Plan& plan) {
  std::vector<std::pair<std::string, std::string>> texts;
  const auto add = [&](const auto& slot) { texts.emplace_back(slot.name(), slot.describe()); };
  const auto add_unless_plain = [&](const auto& slot) {
    if (!slot.is_plain()) add(slot);
  };
  plan.operations.each(add_unless_plain);
  add(plan.task);
  add(plan.precision);
  add(plan.parameters);
  add(plan.optimizer);
  add_unless_plain(plan.rounding);
  add(plan.runner);
  add_unless_plain(plan.profiler);
  add(plan.average);
  return texts;
}

void add(Json& json, const Fact& fact) {
  if (!fact.json.is_object())
    json[fact.key] = fact.json;
  else
    for (const auto& [key, value] : fact.json.items()) json[fact.key][key] = value;
}

}  // namespace

std::string plan_text(const Plan& plan) {
  std::string text;
  const auto line = [&](const std::string& name, const std::string& value) {
    text += fmt::format("  {:<18} {}\n", name, value);
  };
  text += fmt::format("plan of {}\n", plan.name);
  for (const Fact& fact : facts(plan)) line(fact.name, fact.text);
  if (plan.memory)
    for (const auto& remedy : plan.memory->remedies)
      line(plan.memory->fits() ? "would leave room" : "would fit", remedy);
  text += "parts of the step\n";
  for (const auto& [name, what] : slot_texts(plan)) line(name, what);
  text += plan.switches.empty() ? "switches: none\n" : "switches\n";
  for (const auto& entry : plan.switches) line(entry.name, entry.text());
  if (plan.stages.replica.ranks > 1) text += sharding_text(plan);
  for (const auto& note : plan.notes) text += fmt::format("note: {}\n", note);
  return text;
}

Json plan_json(const Plan& plan) {
  Json json = {{"schema_version", 1}, {"name", plan.name}};
  for (const Fact& fact : facts(plan)) add(json, fact);
  for (const auto& [name, what] : slot_texts(plan)) json["slots"][name] = what;
  if (Json sharding = sharding_json(plan); !sharding.empty()) json["sharding"] = std::move(sharding);
  json["switches"] = Json::array();
  for (const auto& entry : plan.switches)
    json["switches"].push_back({{"name", entry.name},
                                {"requested", entry.requested},
                                {"effective", entry.outcome.has_effect},
                                {"text", entry.outcome.text},
                                {"doubt", entry.doubt}});
  json["notes"] = plan.notes;
  return json;
}

namespace {

constexpr int64_t kColumns = 66;
constexpr int64_t kStepsWithoutLimit = 1000;
constexpr int64_t kMostPoints = 10'000;
/// A column of a plot stands for at most so many steps that are looked at.
constexpr int64_t kSamplesPerColumn = 64;

int64_t steps_shown(const Plan& plan) { return plan.steps.value_or(kStepsWithoutLimit); }

/// The `index`-th of `count` steps from `first` to `last`, evenly spaced.
int64_t step_at(int64_t index, int64_t count, int64_t first, int64_t last) {
  if (count <= 1) return first;
  const double part = static_cast<double>(index) / static_cast<double>(count - 1);
  return first + static_cast<int64_t>(std::llround(part * static_cast<double>(last - first)));
}

/// The highest value of each column's steps. `value`: of a step.
template <class Value>
std::vector<double> columns_of(int64_t steps, Value value) {
  const int64_t count = std::min(kColumns, steps);
  std::vector<double> columns;
  for (int64_t column = 0; column < count; ++column) {
    const int64_t first = column * steps / count + 1, last = (column + 1) * steps / count;
    const int64_t samples = std::min(kSamplesPerColumn, last - first + 1);
    columns.push_back(0);
    for (int64_t i = 0; i < samples; ++i)
      columns.back() = std::max(columns.back(), value(step_at(i, samples, first, last)));
  }
  return columns;
}

std::string axis(int64_t width, int64_t steps) {
  const std::string last = with_commas(steps);
  std::string line = "           └";
  for (int64_t i = 0; i < width; ++i) line += "─";
  const auto gap = std::max<int64_t>(1, width - 6 - static_cast<int64_t>(last.size()));
  return line + "\n            step 1" + std::string(static_cast<size_t>(gap), ' ') + last + "\n";
}

}  // namespace

std::string schedule_picture(const Plan& plan) {
  const Schedule schedule = plan.schedule();
  const int64_t steps = steps_shown(plan);
  const auto rates = columns_of(steps, [&](int64_t step) { return schedule.at(step).learning_rate; });
  std::string text = "learning rate\n" + bar_plot(rates, 0, 10);
  if (const CycledMomentum* cycled = cycled_momentum(plan.scheduler)) {
    const auto momenta = columns_of(steps, [&](int64_t step) { return *schedule.at(step).momentum; });
    // Half as far below its lowest value as it moves, so that this is seen too.
    const double range = cycled->max_momentum - cycled->base_momentum;
    text += "momentum\n" + bar_plot(momenta, std::max(0.0, cycled->base_momentum - range / 2), 4);
  }
  return text + axis(static_cast<int64_t>(rates.size()), steps) +
         (plan.steps ? "" : "the run has no limit on steps: the first of them\n");
}

Json schedule_json(const Plan& plan) {
  const Schedule schedule = plan.schedule();
  const int64_t steps = steps_shown(plan), count = std::min(steps, kMostPoints);
  Json numbers = Json::array(), rates = Json::array(), momenta = Json::array();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t step = step_at(i, count, 1, steps);
    const auto [rate, momentum] = schedule.at(step);
    numbers.push_back(step);
    rates.push_back(rate);
    if (momentum) momenta.push_back(*momentum);
  }
  return {{"step", numbers}, {"learning_rate", rates}, {"momentum", momenta.empty() ? Json() : momenta}};
}

}  // namespace trainopt
