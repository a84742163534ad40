// Outputs for the rows of step records.
#pragma once

#include "base/json.h"
#include "metrics/config.h"
#include "metrics/console.h"
#include "metrics/format.h"
#include "metrics/line_file.h"
#include "metrics/record.h"

#include <bitset>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

// What every output for step records is.

/// A sink that has no place for something other than records ignores it.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(const StepRecord& row) = 0;
  virtual void flush() = 0;
  /// Lines, or records of a binary file, dropped because of a full disk.
  virtual int64_t dropped_lines() const { return 0; }

  /// Called before the first row with the resolved recipe.
  virtual void run_began(const Json& /*recipe*/, const std::string& /*recipe_yaml*/) {}
  /// `evaluation` is an object whose numbers have names with units.
  virtual void evaluated(int64_t /*step*/, const Json& /*evaluation*/) {}
  /// Called after the last row with the content of summary.json.
  virtual void run_ended(const Json& /*summary*/) {}
};

/// One JSON object per line: metrics.jsonl, or what `line` makes of a row.
class JsonlSink : public Sink {
 public:
  using Line = std::string (*)(const StepRecord& row);
  explicit JsonlSink(const std::filesystem::path& path, Line line = json_line) : file_(path), line_(line) {}
  void write(const StepRecord& row) override { file_.write(line_(row)); }
  void flush() override { file_.flush(); }
  int64_t dropped_lines() const override { return file_.dropped_lines(); }

 private:
  LineFile file_;
  Line line_;
};

/// metrics.csv: a header, then one line per row. A file that already has lines (a resumed run) gets no second header.
class CsvSink : public Sink {
 public:
  explicit CsvSink(const std::filesystem::path& path);
  void write(const StepRecord& row) override;
  void flush() override { file_.flush(); }
  int64_t dropped_lines() const override { return file_.dropped_lines(); }

 private:
  LineFile file_;
};

/// The sinks that a recipe selects, and with several ranks ranks.jsonl. They receive every n-th row, the first and the
/// last.
class Sinks {
 public:
  /// Opens the files in `run_dir` (empty: none). Throws UserError(storage) if that fails. `resumed_after`: the step of
  /// the checkpoint that the run continues from, whose first row is already written; 0 for a new run.
  Sinks(const LoggingConfig& config, const std::filesystem::path& run_dir, ConsoleOptions console,
        int64_t resumed_after = 0, int64_t ranks = 1);

  void write(const StepRecord& row);
  // Passed on to every sink.
  void run_began(const Json& recipe, const std::string& recipe_yaml);
  void evaluated(int64_t step, const Json& evaluation);
  void run_ended(const Json& summary);
  /// Writes the last row if it was skipped, flushes, and removes the progress line.
  void finish();
  void flush();
  /// Lines dropped because of a full disk.
  int64_t dropped_lines() const;
  /// By Metric: whether any written row had a value for it.
  const std::bitset<kMetricCount>& recorded() const { return recorded_; }
  /// For other lines (evaluations, the table at the end), in order with the steps.
  Console& console() { return *console_; }

 private:
  void write_now(const StepRecord& row);

  int64_t every_n_steps_, total_steps_;
  bool any_, console_lines_ = false;
  std::unique_ptr<Console> console_;
  std::vector<std::unique_ptr<Sink>> files_;
  std::optional<StepRecord> pending_row_;
  std::bitset<kMetricCount> recorded_;
};

}  // namespace trainopt
