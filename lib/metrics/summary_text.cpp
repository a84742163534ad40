#include "base/units.h"
#include "metrics/format.h"
#include "metrics/summary.h"

#include <iterator>

namespace trainopt {
namespace {

std::string energy_text(const EnergySums& energy, const std::optional<double>& samples_per_joule,
                        const std::optional<EnergySource>& source) {
  std::string text = fmt::format("{:.4g} J", energy.joules());
  if (samples_per_joule) text += fmt::format(", {:.4g} samples per joule", *samples_per_joule);
  if (source) text += fmt::format(" ({})", source->text);
  return text;
}

std::string mfu_text(double share_pct, const std::optional<double>& of_sheet_pct) {
  std::string text = fmt::format("{:.1f} % of the measured peak", share_pct);
  if (of_sheet_pct) text += fmt::format(", {:.1f} % of the data sheet's", *of_sheet_pct);
  if (share_pct > 100)
    text += "; above 100 %: an algorithm multiplies less, or the peak is too low (trainopt roofline --again)";
  return text;
}

}  // namespace

std::string slowdown_text(double slowdown_pct) {
  const std::string pct = fmt::format("{:.1f}", slowdown_pct);
  if (slowdown_pct <= 0 || pct == "0.0") return "recording made no step measurably slower";
  return fmt::format("recording made a step {} % slower", pct);
}

std::string Summary::table(const std::vector<SwitchLine>& switches) const {
  const Statistics s = statistics();
  std::string text;
  size_t width = std::string_view("time to first step").size();
  for (const SwitchLine& line : switches) width = std::max(width, line.name.size());
  const auto row = [&](std::string_view name, const std::string& value) {
    fmt::format_to(std::back_inserter(text), "{}  {:<{}}  {}", text.empty() ? "" : "\n", name, width, value);
  };
  const auto& range = s.samples_per_s_interval;
  const std::string interval =
      range ? fmt::format(" ({}–{}, {:.0f} %)", human_rate(range->low), human_rate(range->high), 100 * kLevel) : "";
  if (s.samples_per_s) row("samples/s", human_rate(*s.samples_per_s) + interval);
  if (s.tokens_per_s) row("tokens/s", human_rate(*s.tokens_per_s));
  if (s.p50)
    row("step time", fmt::format("p50 {}   p95 {}   p99 {}", human_milliseconds(*s.p50), human_milliseconds(*s.p95),
                                 human_milliseconds(*s.p99)));
  if (const std::string phases = s.sums.phases.text(); !phases.empty()) row("mean step", phases);
  if (const auto share = s.sums.data_wait.mean()) row("waiting for data", fmt::format("{:.1f} % of the time", *share));
  if (const auto share = s.sums.mfu.mean()) row("MFU", mfu_text(*share, of_data_sheet(share)));
  if (const auto share = s.sums.gpu_util.mean())
    row("GPU utilization", fmt::format("{:.0f} % of the time with a kernel running (NVML), mean", *share));
  if (const auto share = s.sums.gpu_sm_util.mean())
    row("SM utilization", fmt::format("{:.0f} % of the multiprocessors busy (GPM), mean", *share));
  if (const auto share = s.sums.gpu_tensor_util.mean())
    row("tensor cores", fmt::format("{:.0f} % of the time active (GPM), mean", *share));
  if (const auto share = s.sums.cpu_util.mean())
    row("CPU utilization", fmt::format("{:.0f} % of the allowed cores, mean", *share));
  if (const auto memory = peak_memory_mib_ ? peak_memory_mib_ : largest_memory_mib_)
    row("peak memory", human_bytes(*memory * 0x1p20));
  if (s.energy.any()) row("energy", energy_text(s.energy, s.samples_per_joule, energy_source_));
  if (s.price_per_million_samples)
    row("price",
        fmt::format("{:.4g} per million samples, at {:.4g} per hour", *s.price_per_million_samples, *price_per_hour_));
  if (time_to_first_step_s_) row("time to first step", human_seconds(*time_to_first_step_s_));
  if (measured_steps() > 0) {
    const std::string left_out =
        left_out_steps() == 0 ? "" : fmt::format(", the first {} excluded as warm-up", left_out_steps());
    row("measured over", fmt::format("{} step{}{}", measured_steps(), measured_steps() == 1 ? "" : "s", left_out));
  }
  if (profiled_steps_ > 0) {
    const auto slower = profiler_slowdown_pct(s);
    row("profiled", fmt::format("{} step{}, not counted above{}", profiled_steps_, profiled_steps_ == 1 ? "" : "s",
                                slower ? "; " + slowdown_text(*slower) : ""));
  }
  for (const SwitchLine& line : switches) row(line.name, line.observed);
  for (const std::string& warning : s.warnings) row("warning", warning);
  return text;
}

}  // namespace trainopt
