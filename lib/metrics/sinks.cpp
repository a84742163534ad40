#include "metrics/sinks.h"

#include "metrics/tensorboard.h"

#include <algorithm>

namespace trainopt {

CsvSink::CsvSink(const std::filesystem::path& path) : file_(path) {
  if (file_.was_empty()) file_.write(csv_header());
}

void CsvSink::write(const StepRecord& row) { file_.write(csv_line(row)); }

Sinks::Sinks(const LoggingConfig& config, const std::filesystem::path& run_dir, ConsoleOptions console,
             int64_t resumed_after, int64_t ranks)
    : every_n_steps_(config.every_n_steps), total_steps_(console.total_steps), any_(resumed_after > 0) {
  const auto wants = [&](SinkKind kind) {
    return std::find(config.sinks.begin(), config.sinks.end(), kind) != config.sinks.end();
  };
  console_lines_ = wants(SinkKind::console);
  console.progress = console_lines_ ? config.progress : Progress::off;
  console_ = std::make_unique<Console>(console);
  if (run_dir.empty()) return;
  if (wants(SinkKind::jsonl)) files_.push_back(std::make_unique<JsonlSink>(run_dir / "metrics.jsonl"));
  if (wants(SinkKind::csv)) files_.push_back(std::make_unique<CsvSink>(run_dir / "metrics.csv"));
  if (wants(SinkKind::tensorboard)) files_.push_back(std::make_unique<TensorboardSink>(run_dir, resumed_after));
  if (ranks > 1) files_.push_back(std::make_unique<JsonlSink>(run_dir / "ranks.jsonl", ranks_line));
}

void Sinks::write(const StepRecord& row) {
  if (!any_ || row.step() % every_n_steps_ == 0) {
    pending_row_.reset();
    write_now(row);
  } else {
    pending_row_ = row;  // written by finish() if it turns out to be the last
    console_->step(row, {});
  }
  any_ = true;
}

void Sinks::write_now(const StepRecord& row) {
  for (const MetricInfo& metric : kCatalogue)
    if (row[metric.metric]) recorded_.set(static_cast<size_t>(metric.metric));
  for (const auto& file : files_) file->write(row);
  console_->step(row, console_lines_ ? console_line(row, total_steps_) : std::string());
}

void Sinks::run_began(const Json& recipe, const std::string& recipe_yaml) {
  for (const auto& file : files_) file->run_began(recipe, recipe_yaml);
}

void Sinks::evaluated(int64_t step, const Json& evaluation) {
  for (const auto& file : files_) file->evaluated(step, evaluation);
}

void Sinks::run_ended(const Json& summary) {
  for (const auto& file : files_) file->run_ended(summary);
}

void Sinks::finish() {
  if (pending_row_) write_now(*pending_row_);
  pending_row_.reset();
  flush();
}

void Sinks::flush() {
  for (const auto& file : files_) file->flush();
  console_->flush();
}

int64_t Sinks::dropped_lines() const {
  int64_t lines = 0;
  for (const auto& file : files_) lines += file->dropped_lines();
  return lines;
}

}  // namespace trainopt
