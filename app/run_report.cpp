#include "app/run_report.h"

#include "app/not_measured.h"
#include "base/counted.h"
#include "base/files.h"
#include "device/memory.h"
#include "metrics/environment.h"
#include "train/receipt.h"

#include <spdlog/spdlog.h>
#include <unistd.h>


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
  return {.fd = STDOUT_FILENO, .terminal = terminal, .color = terminal && color, .progress = quiet ? Progress::off : plan.logging.progress,
          .total_steps = plan.steps.value_or(0)};
}

Json evaluation_json(const EvaluationResult& result) {
  return {{"loss", result.loss}, {"top1_pct", result.top1_pct}, {"top5_pct", result.top5_pct}, {"samples", result.samples}, {"wall_s", result.wall_s}};
}

std::string switch_text(const SwitchReceipt& entry) {
  if (entry.receipt.effective) return entry.receipt.reason.empty() ? entry.receipt.observed : entry.receipt.observed + "; " + entry.receipt.reason;
  return "no effect: " + entry.receipt.reason;
}

}  // namespace

RunReport::RunReport(const Plan& plan, std::filesystem::path run_dir, bool quiet, bool color)
    : run_dir_(std::move(run_dir)), quiet_(quiet), sinks_(spoken(plan.logging, quiet), run_dir_, console_options(plan, quiet, color)),
      summary_(plan.bench.warmup_steps),
      telemetry_({.device = plan.device, .interval_s = plan.telemetry.interval.seconds, .file = run_dir_ / "telemetry.jsonl"}),
      evaluations_(run_dir_ / "evaluations.jsonl") {}

void RunReport::step_done(const Row& row) {
  Row whole = row;
  telemetry_.fill(whole);
  summary_.add(whole);
  sinks_.write(whole);
}

void RunReport::evaluated(int64_t step, const EvaluationResult& result) {
  Json line = {{"step", step}};
  line.update(evaluation_json(result));
  evaluations_.write(line.dump() + "\n");
  evaluations_.flush();
  if (!quiet_)
    sinks_.console().line(fmt::format("evaluation after step {}: loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} % of {} samples in {:.1f} s", step, result.loss,
                                      result.top1_pct, result.top5_pct, result.samples, result.wall_s));
}

Json RunReport::summary_json(const Plan& plan, const RunOutcome& outcome, const RunEnd& end) const {
  Json json = {{"schema_version", 1}, {"name", plan.name}, {"status", end.status}, {"reason", end.reason}, {"exit_code", end.exit_code},
               {"steps", outcome.steps}, {"samples", outcome.samples}, {"wall_s", outcome.wall_s}};
  json.update(summary_.to_json());
  json["evaluation"] = outcome.evaluation ? evaluation_json(*outcome.evaluation) : Json();
  json["receipts"] = receipts_json(receipts(plan.switches, outcome.observations));
  return json;
}

void RunReport::finish(const Plan& plan, const Trainer* trainer, const RunEnd& end, double seconds_before_training) {
  const RunOutcome outcome = trainer ? trainer->outcome() : RunOutcome{};
  if (outcome.time_to_first_step_s) summary_.set_time_to_first_step(seconds_before_training + *outcome.time_to_first_step_s);
  summary_.set_peak_memory(peak_memory_mib(plan.device));
  telemetry_.stop();
  sinks_.finish();
  write_file(run_dir_ / "summary.json", summary_json(plan, outcome, end).dump(2) + "\n");   // first: a full disk may have room for it alone
  write_file(run_dir_ / "environment.json", environment(TRAINOPT_VERSION, why_not_measured(plan, sinks_.recorded(), telemetry_.reasons())).dump(2) + "\n");
  const int64_t dropped = sinks_.dropped_lines() + telemetry_.dropped_lines() + evaluations_.dropped_lines();
  if (dropped > 0) spdlog::warn("{} could not be written", counted(dropped, "record line"));
  if (quiet_) return;
  std::vector<SwitchLine> lines;
  for (const auto& entry : receipts(plan.switches, outcome.observations)) lines.push_back({entry.name, switch_text(entry)});
  if (outcome.steps > 0) sinks_.console().line("\n" + summary_.table(lines));
  // Why a run failed is said on standard error by main().
  const std::string how = end.status == "failed" ? fmt::format("after {}", counted(outcome.steps, "step")) : end.reason;
  sinks_.console().line(fmt::format("\n{} {}; the run directory is {}", end.status, how, run_dir_.string()));
  sinks_.flush();
}

}  // namespace trainopt
