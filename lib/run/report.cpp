#include "run/report.h"

#include "base/files/file_calls.h"
#include "base/files/files.h"
#include "base/files/held_folder.h"
#include "base/log.h"
#include "base/print.h"
#include "base/signals.h"
#include "base/units.h"
#include "checkpoint/store.h"
#include "data/loader_bench.h"
#include "debugging/wait_finder.h"
#include "device/memory.h"
#include "metrics/hardware/environment.h"
#include "metrics/format.h"
#include "metrics/line_file.h"
#include "metrics/tensorboard.h"
#include "recipe/recipe_io.h"
#include "run/diagnosis.h"
#include "run/report_page.h"
#include "run/version.h"
#include "train/observe/memory_report.h"
#include "train/receipt.h"

#include <fmt/format.h>

#include <unistd.h>

#include <bitset>
#include <cerrno>
#include <cmath>

namespace trainopt {
namespace {

LoggingConfig without_console(LoggingConfig logging) {
  std::erase(logging.sinks, SinkKind::console);
  logging.progress = Progress::off;
  return logging;
}

ConsoleOptions console_options(const Plan& plan, const OutputOptions& output) {
  const bool terminal = colored_output(output);
  return {.fd = STDOUT_FILENO,
          .terminal = terminal,
          .color = terminal,
          .progress = output.quiet ? Progress::off : plan.logging.progress,
          .total_steps = plan.steps.value_or(0)};
}

constexpr const char *kMetricsJsonl = "metrics.jsonl", *kMetricsCsv = "metrics.csv", *kRanks = "ranks.jsonl",
                     *kEvaluations = "evaluations.jsonl", *kNonfinite = "nonfinite.jsonl";

/// Removes the records written after the checkpoint.
void remove_later_records(const std::filesystem::path& run_dir, const RecordsSoFar& so_far, int64_t every_n_steps) {
  for (const char* name : {kMetricsJsonl, kMetricsCsv, kRanks})
    remove_lines_after(run_dir / name, so_far.step, every_n_steps);
  remove_lines_after(run_dir / kEvaluations, so_far.evaluated_at);
  remove_lines_after(run_dir / kNonfinite, so_far.step);
}

std::string switch_text(const SwitchReceipt& entry) {
  if (entry.receipt.effective)
    return entry.receipt.reason.empty() ? entry.receipt.observed : entry.receipt.observed + "; " + entry.receipt.reason;
  return "no effect: " + entry.receipt.reason;
}

/// The forecast that the run can be held against; none after memory ran out and micro-batches were split.
std::optional<MemoryForecast> forecast_of(const RunOutcome& outcome, const Plan& plan) {
  return outcome.micro_split > 1 ? std::nullopt : plan.memory;
}

Json loader_json(const std::optional<LoaderWork>& work, int64_t workers) {
  if (!work || work->samples == 0) return nullptr;
  Json json = {{"samples", work->samples}, {"workers", workers}};
  json.update(to_json(LoaderShares::of(*work)));
  return json;
}

template <class Result>
std::string quality_text(const Result& result) {
  const std::string loss = fmt::format("loss {:.4f}", result.loss);
  if (result.perplexity) return loss + fmt::format(", perplexity {:.2f}", *result.perplexity);
  if (!result.top1_pct) return loss;
  return loss + fmt::format(", top-1 {:.2f} %, top-5 {:.2f} %", *result.top1_pct, result.top5_pct.value_or(0));
}

std::string trained_on_text(const EvaluationResult& result) {
  return result.trained_on.empty() ? "" : fmt::format(" (this data is trained on: {})", result.trained_on);
}

bool compares_replicas(const Plan& plan) { return plan.parallel.check_replicas_every > 0 && plan.position.ranks > 1; }

/// Why the metric is null in every record, as far as it follows from the plan.
std::string reason_of(Metric metric, const Plan& plan) {
  if (metric == Metric::mfu_pct) return plan.peak.unknown;
  if (metric == Metric::copy_ms && plan.device.is_cpu()) return "on the CPU batches are used in place, without a copy";
  if (metric == Metric::copy_ms && !plan.data.dataset)
    return "synthetic batches are created on the device, without a copy";
  return std::string(info(metric).why_null);
}

/// A reason for each metric that is null in every record: telemetry's own if it has one, otherwise one that follows
/// from the plan.
Reasons why_not_measured(const Plan& plan, const std::bitset<kMetricCount>& recorded, const Reasons& telemetry) {
  Reasons reasons;
  for (const MetricInfo& metric : kCatalogue) {
    if (recorded[static_cast<size_t>(metric.metric)]) continue;
    const std::string name(metric.name);
    const auto known = telemetry.find(name);
    reasons[name] = recorded.none()            ? "no step was completed"
                    : known != telemetry.end() ? known->second
                                               : reason_of(metric.metric, plan);
  }
  return reasons;
}

}  // namespace

RecordsSoFar RecordsSoFar::of(const ArchiveReader& archive) {
  const Json &evaluated = archive.value("evaluated_at"), &loss = archive.value("first_loss");
  return {.step = archive.integer("step"),
          .evaluated_at = evaluated.is_null() ? 0 : evaluated.get<int64_t>(),
          .first_loss = loss.is_null() ? std::nullopt : std::optional(loss.get<double>())};
}

RunReport::Records::Records(const Plan& plan, const std::filesystem::path& run_dir, const OutputOptions& output,
                            int64_t resumed_after, const std::vector<std::string>& energy_gpus)
    : sinks(output.quiet ? without_console(plan.logging) : plan.logging, run_dir, console_options(plan, output),
            resumed_after, plan.position.ranks),
      summary(plan.bench.warmup_steps),
      telemetry({.device = plan.device,
                 .interval_s = plan.telemetry.interval.seconds,
                 .file = run_dir / "telemetry.jsonl",
                 .energy_gpus = energy_gpus}),
      evaluations(run_dir / kEvaluations) {
  summary.set_energy_of_all_ranks(plan.position.one_machine());
}

RunReport::RunReport(const Plan& plan, std::filesystem::path run_dir, const OutputOptions& output,
                     std::function<void(const char*, int64_t)> progress)
    : plan_(plan), run_dir_(std::move(run_dir)), output_(output), progress_(std::move(progress)) {}

void RunReport::refuse_links(const std::filesystem::path& run_dir) {
  for (const char* name : {kMetricsJsonl, kMetricsCsv, kRanks, kEvaluations, kNonfinite})
    if (path_status(run_dir / name, ExitCode::storage).kind == PathKind::link)
      throw FileError("write", run_dir / name, ELOOP, ExitCode::storage);
}

void RunReport::open(const std::optional<RecordsSoFar>& so_far, const Recipe& recipe,
                     const std::vector<std::string>& energy_gpus) {
  if (so_far) remove_later_records(run_dir_, *so_far, plan_.logging.every_n_steps);
  recipe_ = recipe;
  records_.emplace(plan_, run_dir_, output_, so_far ? so_far->step : 0, energy_gpus);
  records_->sinks.run_began(recipe_json(recipe), recipe_yaml(recipe));
  if (so_far) records_->summary.set_first_loss(so_far->first_loss);
}

void RunReport::step_done(const StepRecord& row) {
  if (!records_) return;
  const auto began = Clock::now();
  StepRecord full_row = row;
  records_->telemetry.fill(full_row);
  records_->summary.add(full_row);
  records_->sinks.write(full_row);
  warn_of_spike(row);
  records_s_ += seconds_since(began);
}

void RunReport::warn_of_spike(const StepRecord& row) {
  if (const auto median = records_->spikes.add(row[Metric::loss].value_or(0)); median && !output_.quiet)
    records_->sinks.console().line(
        fmt::format("loss spike in step {}: {:.4f} is {:.1f} times the median of the preceding steps", row.step(),
                    *row[Metric::loss], *row[Metric::loss] / *median));
}

void RunReport::not_finite(const NonfiniteStep& event) {
  if (!records_) return;
  const auto number = [](const std::optional<double>& value) {
    return value ? Json(fmt::format("{}", *value)) : Json();
  };  // JSON cannot represent NaN
  const Json line = {{"step", event.step},
                     {"epoch", event.epoch},
                     {"loss", number(event.loss)},
                     {"grad_norm", number(event.grad_norm)},
                     {"began", event.began},
                     {"action", event.action},
                     {"sample_ids", event.sample_ids},
                     {"sample_ids_before", event.sample_ids_before}};
  LineFile file(run_dir_ / kNonfinite);
  file.write(json_text(line) + "\n");
  log_warning("step {} has non-finite values: {}{}; its samples are in nonfinite.jsonl", event.step, event.action,
              event.began.empty() ? "" : "; " + event.began);
}

void RunReport::save(ArchiveWriter& archive) {
  if (!records_) return;
  records_->sinks.flush();
  records_->evaluations.flush();
  const auto& first_loss = records_->summary.first_loss();
  archive.value("first_loss", first_loss && std::isfinite(*first_loss) ? Json(*first_loss) : Json());
}

void RunReport::sync_records(const std::filesystem::path& run_dir) {
  for (const char* name : {kMetricsJsonl, kMetricsCsv, kRanks, kEvaluations, kNonfinite})
    if (kind_of(run_dir / name) != PathKind::absent) File::open(run_dir / name, ExitCode::storage).sync();
  for (const auto& file : event_files(run_dir)) File::open(file, ExitCode::storage).sync();
}

void RunReport::evaluated(int64_t step, const EvaluationResult& result) {
  if (!records_) return;
  Json line = {{"step", step}};
  line.update(to_json(result));
  records_->evaluations.write(json_text(line) + "\n");
  records_->evaluations.flush();
  records_->sinks.evaluated(step, to_json(result));
  if (output_.quiet) return;
  records_->sinks.console().line(fmt::format(
      "evaluation after step {}: {} of {} samples in {:.1f} s{}{}{}", step, quality_text(result), result.samples,
      result.wall_s, result.left_out > 0 ? fmt::format(", {} left out", result.left_out) : "",
      result.average ? "; average: " + quality_text(*result.average) : "", trained_on_text(result)));
}

Json RunReport::summary_json(const RunOutcome& outcome, const RunEnd& end) const {
  const auto& skipped = outcome.trace.skipped_updates;
  Json json = {{"schema_version", 1},
               {"name", plan_.name},
               {"status", end.status},
               {"reason", end.reason},
               {"exit_code", end.exit_code},
               {"steps", outcome.steps},
               {"samples", outcome.samples},
               {"wall_s", outcome.wall_s},
               {"resumed_from", outcome.resumed_from ? Json(*outcome.resumed_from) : Json()},
               {"skipped_steps", outcome.skipped_steps},
               {"skipped_updates", skipped ? Json(skipped->all) : Json()},
               {"micro_split", outcome.micro_split}};
  json.update(records_->summary.to_json());
  json["replica_checks"] = compares_replicas(plan_)
                               ? Json{{"passed", outcome.replicas.passed}, {"wall_s", outcome.replicas.wall_s}}
                               : Json();
  json["evaluation"] = outcome.evaluation ? to_json(*outcome.evaluation) : Json();
  json["target"] = target_json(outcome, plan_, json.at("samples_per_joule"));
  json.update(to_json(diagnose(recipe_, plan_, outcome, records_->summary, records_s_), run_dir_, plan_));
  json["loader"] = loader_json(outcome.loading, plan_.loader.num_workers);
  const auto storage = plan_.data.files ? plan_.data.files->use() : std::nullopt;
  json["storage"] = storage ? to_json(*storage) : Json();
  json["memory"] = memory_json(outcome.trace, forecast_of(outcome, plan_));
  const auto& waits = outcome.trace.hidden_waits;
  json["hidden_waits"] = waits ? hidden_waits_json(*waits) : Json();
  json["receipts"] = receipts_json(receipts(plan_.switches, outcome.trace));
  for (const auto& [key, report] : plan_.reports) json[key] = report();
  return json;
}

void RunReport::write_step_times() const {
  std::string lines = "samples,seconds\n";
  for (const Piece& piece : records_->summary.pieces()) lines += fmt::format("{},{}\n", piece.samples, piece.seconds);
  write_file(run_dir_ / "step_times.csv", lines);
}

void RunReport::write_bad_samples(const Json& bad_samples) const {
  std::string lines;
  for (const auto& bad : bad_samples) lines += json_text(bad) + "\n";
  if (!lines.empty()) write_file(run_dir_ / "bad_samples.jsonl", lines);
}

void RunReport::finish(const Trainer* trainer, const Json& bad_samples, const RunEnd& end,
                       double seconds_before_training) {
  if (!records_) return;
  const RunOutcome outcome = trainer ? trainer->outcome() : RunOutcome{};
  if (outcome.time_to_first_step_s)
    records_->summary.set_time_to_first_step(seconds_before_training + *outcome.time_to_first_step_s);
  records_->summary.set_peak_memory(peak_memory_mib(plan_.device));
  records_->telemetry.stop();
  records_->summary.set_measured_by_data_sheet(plan_.peak.by_data_sheet);
  records_->summary.set_energy_source(records_->telemetry.energy_source());
  records_->summary.set_price_per_hour(plan_.bench.price_per_hour);
  records_->sinks.finish();
  const Json summary = write_files(outcome, bad_samples, end);
  if (output_.silent) return;
  if (output_.json)
    print_json_result(summary);
  else
    output_.quiet ? print_result(summary, outcome, end) : print_end(outcome, end);
}

void RunReport::finish_failed(const Trainer* trainer, const Explained& failure, double seconds_before_training) {
  if (!records_) return;
  try {
    finish(trainer, trainer ? to_json(trainer->bad_samples()) : Json::array(),
           {"failed", failure.message, static_cast<int>(failure.code)}, seconds_before_training);
  } catch (const std::exception& error) {   // named recovery: the run's own failure is still reported
    const Explained also = explain(error);  // the failure itself says enough about a full disk
    if (also.code != ExitCode::storage || failure.code != ExitCode::storage) log_error("{}", also.message);
  }
}

Json RunReport::write_files(const RunOutcome& outcome, const Json& bad_samples, const RunEnd& end) {
  // First, because a full disk may have room for nothing else.
  const Json summary = summary_json(outcome, end);
  write_file(run_dir_ / "summary.json", json_text(summary, 2) + "\n");
  records_->sinks.run_ended(summary);
  const auto not_measured = why_not_measured(plan_, records_->sinks.recorded(), records_->telemetry.reasons());
  EnvironmentSources sources;
  sources.visible_devices = plan_.machine.evidence.visible_devices;
  Json environment_json = environment({kBuild.version, kBuild.commit}, not_measured, sources);
  environment_json["variables_set"] = plan_.process.environment;
  write_file(run_dir_ / "environment.json", json_text(environment_json, 2) + "\n");
  write_step_times();
  write_bad_samples(bad_samples);
  const int64_t dropped =
      records_->sinks.dropped_lines() + records_->telemetry.dropped_lines() + records_->evaluations.dropped_lines();
  if (dropped > 0) log_warning("{} could not be written", counted(dropped, "record line"));
  if (plan_.logging.report) write_own_report(run_dir_);
  return summary;
}

void RunReport::print_json_result(const Json& summary) const {
  Json json = {{"run_dir", path_for_others(run_dir_).string()}};
  json.update(summary);
  print_json_text(json_text(json, 2) + "\n");
  std::fflush(stdout);
}

void RunReport::print_result(const Json& summary, const RunOutcome& outcome, const RunEnd& end) const {
  std::string result = end.status == "failed" ? fmt::format("failed after {}", counted(outcome.steps, "step"))
                                              : fmt::format("{} {}", end.status, end.reason);
  if (const Json& rate = summary.at("samples_per_s"); rate.is_number())
    result += fmt::format(", {} samples/s", human_rate(rate.get<double>()));
  if (const Json& loss = summary.at("loss").at("last"); loss.is_number())
    result += fmt::format(", last loss {:.4g}", loss.get<double>());
  if (outcome.evaluation) result += ", " + quality_text(*outcome.evaluation) + trained_on_text(*outcome.evaluation);
  print_out("{}; the run directory is {}\n", result, path_for_others(run_dir_).string());
  std::fflush(stdout);
}

void RunReport::print_end(const RunOutcome& outcome, const RunEnd& end) {
  std::vector<SwitchLine> lines;
  if (const auto text = memory_text(outcome.trace.memory); !text.empty()) lines.push_back({"tensor memory", text});
  if (const auto text = forecast_receipt(outcome.trace.memory, forecast_of(outcome, plan_)); !text.empty())
    lines.push_back({"memory forecast", text});
  if (const auto storage = plan_.data.files ? plan_.data.files->use() : std::nullopt)
    lines.push_back({"storage", storage->speed.reads > 0 ? fmt::format("{}; {}", storage->text(), storage->speed_text())
                                                         : storage->text()});
  for (const auto& leak : outcome.trace.memory_leaks) lines.push_back({"memory", leak.text()});
  for (const auto& spike : outcome.trace.memory_spikes) lines.push_back({"memory", spike.text()});
  for (auto& line : lines_of(diagnose(recipe_, plan_, outcome, records_->summary, records_s_), run_dir_, plan_))
    lines.push_back(std::move(line));
  for (const auto& entry : receipts(plan_.switches, outcome.trace)) lines.push_back({entry.name, switch_text(entry)});
  Console& console = records_->sinks.console();
  if (outcome.steps > 0) console.line("\n" + records_->summary.table(lines));
  if (compares_replicas(plan_))
    console.line(fmt::format("\nreplica checks: {} passed in {:.1f} ms", outcome.replicas.passed,
                             1e3 * outcome.replicas.wall_s));
  if (const auto& waits = outcome.trace.hidden_waits)
    console.line("\n" + hidden_waits_text(*waits, outcome.trace.step, plan_.device.is_cpu()));
  // main() prints the reason for a failure to standard error.
  const std::string how = end.status == "failed" ? fmt::format("after {}", counted(outcome.steps, "step")) : end.reason;
  console.line(fmt::format("\n{} {}; the run directory is {}", end.status, how, path_for_others(run_dir_).string()));
  records_->sinks.flush();
}

namespace {

/// " (train.target: top1_pct of at least 97; 97.2)", or that it was not reached; empty without a target.
std::string target_text(const RunOutcome& outcome, const Plan& plan) {
  const auto goal = goal_of(plan.train.target);
  if (!goal) return "";
  const auto value = outcome.evaluation ? measured_for(*goal, *outcome.evaluation) : std::nullopt;
  return fmt::format(" (train.target: {}; {}{})", text(*goal), outcome.target ? "" : "not reached, ",
                     value ? fmt::format("{:.4g}", *value) : "never evaluated");
}

}  // namespace

void require_updates(const RunOutcome& outcome, const Plan& plan) {
  const auto& skipped = outcome.trace.skipped_updates;
  const int64_t steps = outcome.steps - outcome.resumed_from.value_or(0);
  if (!skipped || steps == 0 || outcome.stopped_by_signal != 0 ||
      skipped->at_end < steps - left_out_steps(steps, plan.bench.warmup_steps))
    return;
  throw UserError(
      fmt::format("no measured step updated the weights: float16's gradients overflowed, and their updates were "
                  "skipped; use bfloat16, or a lower init_scale: {} of {} updates",
                  skipped->all, steps),
      ExitCode::diverged);
}

RunEnd end_of_run(const RunOutcome& outcome, const Plan& plan, const std::optional<int64_t>& saved_step,
                  int64_t restarts) {
  const int64_t skipped = outcome.trace.skipped_updates ? outcome.trace.skipped_updates->all : 0;
  const std::string steps = counted(outcome.steps, "step") +
                            (skipped > 0
                                 ? fmt::format(", {} skipped because float16 overflowed{}", counted(skipped, "update"),
                                               outcome.resumed_from ? " since the resume" : "")
                                 : ""),
                    with = restarts > 0 ? fmt::format(", with {}", counted(restarts, "restart")) : "";
  if (outcome.stopped_by_signal != 0) {
    const std::string saved =
        saved_step == outcome.steps ? fmt::format(", saved as {}", checkpoint_name(outcome.steps)) : "";
    if (outcome.stopped_by_signal == kFolderTaken)
      return {"stopped", fmt::format("after {}{}{}", steps, with, saved), static_cast<int>(ExitCode::storage)};
    return {"stopped", fmt::format("by signal {} after {}{}{}", outcome.stopped_by_signal, steps, with, saved),
            128 + outcome.stopped_by_signal};
  }
  if (goal_of(plan.train.target))
    return {"done", fmt::format("after {}{}{}", steps, with, target_text(outcome, plan)), 0};
  return {"done",
          !plan.steps || outcome.steps < *plan.steps
              ? fmt::format("after {}{} (train.max_time: {})", steps, with, to_text(*plan.train.max_time))
              : fmt::format("after {}{}", steps, with),
          0};
}

Json target_json(const RunOutcome& outcome, const Plan& plan, const Json& samples_per_joule) {
  const auto goal = goal_of(plan.train.target);
  if (!goal) return {};
  const TargetReached at = outcome.target.value_or(TargetReached{outcome.steps, outcome.samples, outcome.training_s});
  const auto value = outcome.evaluation ? measured_for(*goal, *outcome.evaluation) : std::nullopt;
  const auto& price = plan.bench.price_per_hour;
  return {{"metric", goal->metric},
          {"goal", goal->value},
          {"value", value ? Json(*value) : Json()},
          {"reached", outcome.target.has_value()},
          {"step", at.step},
          {"samples", at.samples},
          {"training_s", at.training_s},
          {"resolution_steps", plan.evaluation ? Json(plan.evaluation->every_n_steps.value_or(0)) : Json()},
          {"energy_j", samples_per_joule.is_number()
                           ? Json(static_cast<double>(at.samples) / samples_per_joule.get<double>())
                           : Json()},
          {"price", price ? Json(*price * at.training_s / 3600) : Json()}};
}

}  // namespace trainopt
