#include "metrics/format.h"

#include "base/units.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace trainopt {

void append_number(std::string& text, const MetricInfo& metric, double value) {
  const auto out = std::back_inserter(text);
  switch (metric.form) {
    case NumberForm::integer:
      fmt::format_to(out, "{:.0f}", value);
      return;
    case NumberForm::float32:  // nine digits identify the float that the double came from
    case NumberForm::real:
      fmt::format_to(out, "{:.9g}", value);
      return;
  }
}

namespace {

/// Calls `add` with the name of each time in RankTimes and a function that returns it.
template <class Add>
void for_each_rank_time(const Add& add) {
  add("step_ms", [](const RankTimes& rank) { return rank.step_ms; });
  add("data_wait_ms", [](const RankTimes& rank) { return rank.data_wait_ms; });
  add("comm_exposed_ms", [](const RankTimes& rank) { return rank.comm_exposed_ms; });
  add("busy_ms", [](const RankTimes& rank) { return rank.busy_ms(); });
}

}  // namespace

/// Minimum, mean and maximum over the ranks of each time that differs among them, with the ranks of the extremes.
std::string ranks_json(const std::vector<RankTimes>& ranks) {
  std::string text;
  const auto add = [&](const char* name, auto number) {
    const auto less = [&](const RankTimes& a, const RankTimes& b) { return number(a) < number(b); };
    const auto [lowest, highest] = std::minmax_element(ranks.begin(), ranks.end(), less);
    double sum = 0;
    for (const auto& rank : ranks) sum += number(rank);
    text += fmt::format("{}\"{}\":{{\"min\":{:.9g},\"min_rank\":{},\"mean\":{:.9g},\"max\":{:.9g},\"max_rank\":{}}}",
                        text.empty() ? "" : ",", name, number(*lowest), lowest - ranks.begin(),
                        sum / static_cast<double>(ranks.size()), number(*highest), highest - ranks.begin());
  };
  for_each_rank_time(add);
  return ",\"ranks\":{" + text + "}";
}

std::string json_line(const StepRecord& row) {
  std::string line;
  line.reserve(640);
  for (const MetricInfo& metric : kCatalogue) {
    line += line.empty() ? "{\"" : ",\"";
    line += metric.name;
    line += "\":";
    const auto& value = row[metric.metric];
    if (!value)
      line += "null";
    else if (std::isnan(*value))
      line += "\"NaN\"";
    else if (std::isinf(*value))
      line += *value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    else
      append_number(line, metric, *value);
  }
  if (!row.ranks.empty()) line += ranks_json(row.ranks);
  line += "}\n";
  return line;
}

std::string ranks_line(const StepRecord& row) {
  std::string line = fmt::format("{{\"step\":{}", row.step());
  const auto add = [&](const char* name, auto number) {
    fmt::format_to(std::back_inserter(line), ",\"{}\":[", name);
    for (size_t rank = 0; rank < row.ranks.size(); ++rank)
      fmt::format_to(std::back_inserter(line), "{}{:.9g}", rank == 0 ? "" : ",", number(row.ranks[rank]));
    line += ']';
  };
  for_each_rank_time(add);
  return line + "}\n";
}

std::string csv_header() {
  std::string line;
  for (const MetricInfo& metric : kCatalogue) {
    if (!line.empty()) line += ',';
    line += metric.name;
  }
  return line + '\n';
}

std::string csv_line(const Values& row) {
  std::string line;
  line.reserve(320);
  for (const MetricInfo& metric : kCatalogue) {
    if (metric.metric != kCatalogue.front().metric) line += ',';
    const auto& value = row[metric.metric];
    if (value) append_number(line, metric, *value);
  }
  line += '\n';
  return line;
}

std::string human_rate(double per_second) {
  if (per_second >= 100) return fmt::format("{:.0f}", per_second);
  return fmt::format("{:.{}f}", per_second, per_second >= 10 ? 1 : 2);
}

std::string human_milliseconds(double milliseconds) {
  return fmt::format("{:.{}f} ms", milliseconds, milliseconds < 1 ? 3 : 1);
}

std::string human_seconds(double seconds) {
  if (seconds < 60) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 1 : 0);
  const int64_t rounded = std::llround(seconds);
  if (rounded < 3600) return fmt::format("{}m {:02d}s", rounded / 60, rounded % 60);
  return fmt::format("{}h {:02d}m", rounded / 3600, rounded / 60 % 60);
}

std::string console_line(const StepRecord& row, int64_t total_steps) {
  std::string line;
  const auto out = std::back_inserter(line);
  if (total_steps > 0) {
    const std::string total = std::to_string(total_steps);
    fmt::format_to(out, "step  {:>{}}/{}", row.step(), total.size(), total);
  } else {
    fmt::format_to(out, "step  {:>6}", row.step());
  }
  const auto& step_ms = row[Metric::step_ms];
  if (const auto& loss = row[Metric::loss]) fmt::format_to(out, "  loss {:.4f}", *loss);
  if (const auto& samples = row[Metric::samples_per_s]) fmt::format_to(out, "  {} samples/s", human_rate(*samples));
  if (const auto& tokens = row[Metric::tokens_per_s]) fmt::format_to(out, "  {} tokens/s", human_rate(*tokens));
  if (step_ms) fmt::format_to(out, "  step {}", human_milliseconds(*step_ms));
  if (const auto& wait = row[Metric::data_wait_ms]) {
    fmt::format_to(out, "  data {:.1f} ms", *wait);
    if (step_ms && *step_ms > 0) fmt::format_to(out, " ({:.0f} %)", 100 * *wait / *step_ms);
  }
  if (const auto& gpu = row[Metric::gpu_util_pct])
    fmt::format_to(out, "  gpu {:.0f} %", *gpu);
  else if (const auto& cpu = row[Metric::cpu_util_pct])
    fmt::format_to(out, "  cpu {:.0f} %", *cpu);
  for (const Metric memory : {Metric::memory_reserved_mib, Metric::gpu_memory_used_mib, Metric::process_rss_mib})
    if (row[memory]) {
      fmt::format_to(out, "  mem {}", human_bytes(*row[memory] * 0x1p20));
      break;
    }
  return line;
}

}  // namespace trainopt
