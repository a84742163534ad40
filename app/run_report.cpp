#include "app/run_report.h"

#include "app/not_measured.h"
#include "base/counted.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "device/memory.h"
#include "metrics/environment.h"
#include "metrics/resumed_lines.h"
#include "train/receipt.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cmath>

namespace trainopt {
namespace {

LoggingConfig spoken(LoggingConfig logging, bool quiet) {
  if (quiet) {
    std::erase(logging.sinks, SinkKind::console);
    logging.progress = Progress::off;
  }
  return logging;
}

ConsoleOptions console_options(const Plan& plan, bool quiet, bool color) {
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  return {.fd = STDOUT_FILENO,
          .terminal = terminal,
          .color = terminal && color,
          .progress = quiet ? Progress::off : plan.logging.progress,
          .total_steps = plan.steps.value_or(0)};
}

constexpr const char *kMetricsJsonl = "metrics.jsonl", *kMetricsCsv = "metrics.csv",
                     *kEvaluations = "evaluations.jsonl", *kNonfinite = "nonfinite.jsonl";

/// Takes away what was recorded after the checkpoint.
std::filesystem::path go_on(std::filesystem::path run_dir, const std::optional<RecordsSoFar>& so_far,
                            int64_t every_n_steps) {
  if (!so_far) return run_dir;
  for (const char* name : {kMetricsJsonl, kMetricsCsv}) keep_lines_up_to(run_dir / name, so_far->step, every_n_steps);
  keep_lines_up_to(run_dir / kEvaluations, so_far->evaluated_at);
  keep_lines_up_to(run_dir / kNonfinite, so_far->step);
  return run_dir;
}

std::string switch_text(const SwitchReceipt& entry) {
  if (entry.receipt.effective)
    return entry.receipt.reason.empty() ? entry.receipt.observed : entry.receipt.observed + "; " + entry.receipt.reason;
  return "no effect: " + entry.receipt.reason;
}

}  // namespace

RecordsSoFar RecordsSoFar::of(const ArchiveReader& archive) {
  const Json &evaluated = archive.value("evaluated_at"), &loss = archive.value("first_loss");
  return {.step = archive.integer("step"),
          .evaluated_at = evaluated.is_null() ? 0 : evaluated.get<int64_t>(),
          .first_loss = loss.is_null() ? std::nullopt : std::optional(loss.get<double>())};
}

RunReport::RunReport(const Plan& plan, std::filesystem::path run_dir, const std::optional<RecordsSoFar>& so_far,
                     bool quiet, bool color)
    : run_dir_(go_on(std::move(run_dir), so_far, plan.logging.every_n_steps)),
      quiet_(quiet),
      sinks_(spoken(plan.logging, quiet), run_dir_, console_options(plan, quiet, color), so_far && so_far->step > 0),
      summary_(plan.bench.warmup_steps),
      telemetry_(
          {.device = plan.device, .interval_s = plan.telemetry.interval.seconds, .file = run_dir_ / "telemetry.jsonl"}),
      evaluations_(run_dir_ / kEvaluations) {
  if (so_far) summary_.set_first_loss(so_far->first_loss);
}

void RunReport::step_done(const StepRecord& row) {
  StepRecord whole = row;
  telemetry_.fill(whole);
  summary_.add(whole);
  sinks_.write(whole);
  warn_of_spike(row);
}

void RunReport::warn_of_spike(const StepRecord& row) {
  if (const auto median = spikes_.add(row[Metric::loss].value_or(0)); median && !quiet_)
    sinks_.console().line(fmt::format("loss spike in step {}: {:.4f} is {:.1f} times the median of the steps before",
                                      row.step(), *row[Metric::loss], *row[Metric::loss] / *median));
}

void RunReport::not_finite(const NonfiniteStep& event) {
  const auto number = [](const std::optional<double>& value) {
    return value ? Json(fmt::format("{}", *value)) : Json();
  };  // JSON has no word for nan
  const Json line = {{"step", event.step},
                     {"epoch", event.epoch},
                     {"loss", number(event.loss)},
                     {"grad_norm", number(event.grad_norm)},
                     {"action", event.action},
                     {"sample_ids", event.sample_ids},
                     {"sample_ids_before", event.sample_ids_before}};
  LineFile file(run_dir_ / kNonfinite);
  file.write(line.dump() + "\n");
  spdlog::warn("step {} is not finite: {}; its samples are in nonfinite.jsonl", event.step, event.action);
}

void RunReport::save(ArchiveWriter& archive) {
  sinks_.flush();
  evaluations_.flush();
  const auto& first_loss = summary_.first_loss();
  archive.value("first_loss", first_loss && std::isfinite(*first_loss) ? Json(*first_loss) : Json());
}

void RunReport::sync_records(const std::filesystem::path& run_dir) {
  for (const char* name : {kMetricsJsonl, kMetricsCsv, kEvaluations, kNonfinite})
    if (std::filesystem::exists(run_dir / name)) File::open(run_dir / name, ExitCode::storage).sync();
}

void RunReport::evaluated(int64_t step, const EvaluationResult& result) {
  Json line = {{"step", step}};
  line.update(to_json(result));
  evaluations_.write(line.dump() + "\n");
  evaluations_.flush();
  if (!quiet_)
    sinks_.console().line(
        fmt::format("evaluation after step {}: loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} % of {} samples in {:.1f} s",
                    step, result.loss, result.top1_pct, result.top5_pct, result.samples, result.wall_s));
}

Json RunReport::summary_json(const Plan& plan, const RunOutcome& outcome, const RunEnd& end) const {
  Json json = {{"schema_version", 1},
               {"name", plan.name},
               {"status", end.status},
               {"reason", end.reason},
               {"exit_code", end.exit_code},
               {"steps", outcome.steps},
               {"samples", outcome.samples},
               {"wall_s", outcome.wall_s},
               {"resumed_from", outcome.resumed_from ? Json(*outcome.resumed_from) : Json()},
               {"skipped_steps", outcome.skipped_steps},
               {"micro_split", outcome.micro_split}};
  json.update(summary_.to_json());
  json["evaluation"] = outcome.evaluation ? to_json(*outcome.evaluation) : Json();
  json["receipts"] = receipts_json(receipts(plan.switches, outcome.trace));
  return json;
}

void RunReport::write_bad_samples(const Json& bad_samples) const {
  std::string lines;
  for (const auto& bad : bad_samples) lines += bad.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (!lines.empty()) write_file(run_dir_ / "bad_samples.jsonl", lines);
}

void RunReport::finish(const Plan& plan, const Trainer* trainer, const Json& bad_samples, const RunEnd& end,
                       double seconds_before_training) {
  const RunOutcome outcome = trainer ? trainer->outcome() : RunOutcome{};
  if (outcome.time_to_first_step_s)
    summary_.set_time_to_first_step(seconds_before_training + *outcome.time_to_first_step_s);
  summary_.set_peak_memory(peak_memory_mib(plan.device));
  telemetry_.stop();
  sinks_.finish();
  write_file(run_dir_ / "summary.json",
             summary_json(plan, outcome, end).dump(2) + "\n");  // first: a full disk may have room for it alone
  write_file(
      run_dir_ / "environment.json",
      environment(TRAINOPT_VERSION, why_not_measured(plan, sinks_.recorded(), telemetry_.reasons())).dump(2) + "\n");
  write_bad_samples(bad_samples);
  const int64_t dropped = sinks_.dropped_lines() + telemetry_.dropped_lines() + evaluations_.dropped_lines();
  if (dropped > 0) spdlog::warn("{} could not be written", counted(dropped, "record line"));
  if (quiet_) return;
  std::vector<SwitchLine> lines;
  for (const auto& entry : receipts(plan.switches, outcome.trace)) lines.push_back({entry.name, switch_text(entry)});
  if (outcome.steps > 0) sinks_.console().line("\n" + summary_.table(lines));
  // Why a run failed is said on standard error by main().
  const std::string how = end.status == "failed" ? fmt::format("after {}", counted(outcome.steps, "step")) : end.reason;
  sinks_.console().line(fmt::format("\n{} {}; the run directory is {}", end.status, how, run_dir_.string()));
  sinks_.flush();
}

}  // namespace trainopt
