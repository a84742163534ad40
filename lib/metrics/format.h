// Rows as JSON, CSV and console lines.
#pragma once

#include "metrics/record.h"

#include <string>

namespace trainopt {

/// One JSON object and a newline. Keys are in the catalogue's order. Unmeasured values are null; non-finite ones, which
/// JSON cannot represent, are the strings "NaN", "Infinity" and "-Infinity".
std::string json_line(const StepRecord& row);
/// One line of ranks.jsonl: the step and, as lists by rank, each of its times.
std::string ranks_line(const StepRecord& row);
/// The header, and a row in the same order. Unmeasured values are empty; non-finite ones are nan, inf or -inf.
std::string csv_header();
std::string csv_line(const Values& row);
/// "step   12/100  loss 2.3012  1243 samples/s  step 25.7 ms  data 0.3 ms (1 %)  gpu 97 %  mem 11.3 GiB" without a
/// newline; on a machine without a GPU "cpu" and resident memory. Unmeasured values are omitted. `total_steps` 0:
/// unknown.
std::string console_line(const StepRecord& row, int64_t total_steps);

/// "1243", "12.3", "0.50".
std::string human_rate(double per_second);
/// "25.7 ms"; below a millisecond "0.482 ms".
std::string human_milliseconds(double milliseconds);
/// "2.1 s", "1m 05s", "2h 05m".
std::string human_seconds(double seconds);

/// Appends a finite `value` in the form of its metric.
void append_number(std::string& text, const MetricInfo& metric, double value);

}  // namespace trainopt
