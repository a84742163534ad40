// Rows as text.
#pragma once

#include "metrics/record.h"

#include <string>

namespace trainopt {

/// One JSON object and a newline, keys in the catalogue's order, null for what was not measured. JSON has no word for
/// what is not finite: those are the strings "NaN", "Infinity" and "-Infinity".
std::string json_line(const StepRecord& row);
/// The names, and a row in their order; empty for what was not measured; nan, inf, -inf.
std::string csv_header();
std::string csv_line(const Values& row);
/// "step   12/100  loss 2.3012  1243 samples/s  step 25.7 ms  data 0.3 ms (1 %)  gpu 97 %  mem 11.3 GiB" without a
/// newline; on a machine without a GPU "cpu" and resident memory. What was not measured is left out. `total_steps` 0:
/// not known.
std::string console_line(const StepRecord& row, int64_t total_steps);

/// "25.7 ms", "1243", "2h 05m": numbers of a size people read.
std::string human_rate(double per_second);
/// "25.7 ms"; below a millisecond "0.482 ms".
std::string human_milliseconds(double milliseconds);
std::string human_seconds(double seconds);

/// A number in the form its metric is written in; it is finite.
void append_number(std::string& text, const MetricInfo& metric, double value);

}  // namespace trainopt
