// A comparison as text, Markdown and CSV.
#pragma once

#include "compare/comparison.h"
#include "compare/output/table.h"

#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

// The words that the reports on two arms, on several and on ablations share.

/// "+2.6 %" for 1.026.
std::string percent_faster(double ratio);
/// "+1.9 % to +3.3 %".
std::string percent_faster(const Interval& interval);
/// "+2.6 % (+1.9 % to +3.3 %)"; without an interval the first part alone.
std::string percent_faster(double ratio, const std::optional<Interval>& interval);
/// The ratio with its interval in a table: "+2.6 % (+1.9 … +3.3)".
std::string with_range(double ratio, const std::optional<Interval>& interval);

/// The colour of a table's cell: green for pays, red for costs, otherwise none.
std::string_view color_of(Verdict verdict);
/// "95 %".
std::string level_text(double level);
/// `separator` and "trainopt compare … --budget 10m"; without the command, only the option. Empty for more than a year.
std::string with_budget(std::string_view separator, const std::string& command, double budget_s);
/// "until it was decided": of Sampling::ended.
std::string_view ending(const std::string& ended);
std::string noise_text(const NoiseFloor& noise);
/// "agree to within rounding: …", "WRONG OR DIFFERENT: …", "not compared: …".
std::string numbers_text(const Numerics& numerics);

/// An arm's name in a report, and its receipts as in summary.json.
struct ArmReceipts {
  std::string arm;
  const Json* receipts = nullptr;
};
/// A line for each switch that was on, or had an effect, in some arms only: "NAME: A off; B …".
std::vector<std::string> switch_lines(const std::vector<ArmReceipts>& arms);

/// A field in CSV, with quotes if necessary: the value of a switch may be a map, with commas.
std::string csv_field(const std::string& text);
/// A turn's numbers in CSV, and their heads.
inline constexpr std::string_view kTurnColumns =
    "steps,samples,seconds,data_wait_s,cpu_s,gpu_sm_clock_mhz,gpu_throttle,other_load_pct";
std::string turn_columns(const Turn& turn, const std::optional<double>& other_load_pct);

/// The verdict on B against A in one line. Gives the end of the interval that has been shown before the measured ratio:
/// a comparison that stops as soon as it is decided tends to stop at a lucky moment.
std::string headline(const PairResult& pair);
/// The verdict on several arms: "zero1 is the fastest: at least 3.1 % faster than each other arm".
std::string headline(const Comparison& comparison);
/// "75.3 samples/s, step 428.3 ms, waiting for data 0.0 %, …".
std::string arm_text(const ArmResult& arm);

/// Several lines for a terminal; in colour, green for what pays, red for what costs and for numbers that disagree.
std::string comparison_text(const Comparison& comparison, const TextStyle& style);
/// The headline, tables and a paragraph in GitHub's Markdown.
std::string comparison_markdown(const Comparison& comparison);
/// One line per turn, with a header: pair,block,order,turn,arm,steps,… of A and B; set,round,turn,arm,steps,… of
/// several.
std::string comparison_csv(const Comparison& comparison);

}  // namespace trainopt
