// The analysis as a page of text.
#include "base/counted.h"
#include "base/units.h"
#include "trace/analysis.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt::trace {
namespace {

constexpr size_t kRowsOfText = 15;
constexpr size_t kNameColumns = 52;
constexpr double kBarColumns = 30;

std::string ms_text(int64_t ns) { return fmt::format("{:.3f}", static_cast<double>(ns) / 1e6); }

double percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

/// At most kNameColumns columns, without cutting a character of several bytes.
std::string name_text(const std::string& name) {
  if (name.size() <= kNameColumns) return name;
  size_t end = kNameColumns - 1;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;
  return name.substr(0, end) + "…";
}

std::string padded_name(const std::string& name) { return fmt::format("{:<{}}", name_text(name), kNameColumns); }

std::string heading(const RankAnalysis& rank, bool several) {
  std::string text = several ? fmt::format("rank {}: ", rank.rank) : "";
  if (!rank.labelled_steps)
    text += "the whole trace";
  else if (rank.steps.size() == 1)
    text += fmt::format("step {}", rank.steps.front().step);
  else
    text += fmt::format("{}, {} to {}", counted(static_cast<int64_t>(rank.steps.size()), "step"),
                        rank.steps.front().step, rank.steps.back().step);
  text += fmt::format(", {} ms of wall time", ms_text(rank.breakdown.wall_ns));
  if (rank.steps.size() > 1)
    text += fmt::format(", {} ms a step", ms_text(rank.breakdown.wall_ns / static_cast<int64_t>(rank.steps.size())));
  return text + "\n";
}

std::string breakdown_text(const Breakdown& breakdown) {
  std::string text;
  for (size_t i = 0; i < kCategories; ++i) {
    if (breakdown.ns[i] == 0 && i != static_cast<size_t>(Category::cpu)) continue;
    const double part = percent(breakdown.ns[i], breakdown.wall_ns);
    const std::string bar(static_cast<size_t>(part / 100 * kBarColumns + 0.5), '#');
    text += fmt::format("  {:<14}{:>13} ms{:>7.1f} %{}\n", kCategoryNames[i], ms_text(breakdown.ns[i]), part,
                        bar.empty() ? "" : "  " + bar);
  }
  return text;
}

std::string rest_text(size_t all, size_t shown) {
  return all > shown ? fmt::format("  and {} more (--top {} lists all)\n", all - shown, all) : "";
}

std::string operations_text(const RankAnalysis& rank, const AnalysisView& view) {
  const auto shown = shown_operations(rank, view);
  if (shown.empty()) return "";
  const bool flops = std::any_of(rank.operations.begin(), rank.operations.end(),
                                 [](const Operation& operation) { return operation.flops > 0; });
  std::string text =
      fmt::format("\n{:<{}}{:>9}{:>14}{:>14}", "operation", kNameColumns + 2, "calls", "cpu self, ms", "cpu total, ms");
  if (rank.device) text += fmt::format("{:>16}{:>17}", "device self, ms", "device total, ms");
  if (flops) text += fmt::format("{:>12}", "GFLOP");
  text += "\n";
  for (const Operation& operation : shown) {
    text += fmt::format("  {}{:>9}{:>14}{:>14}", padded_name(operation.name), operation.calls,
                        ms_text(operation.cpu_self_ns), ms_text(operation.cpu_total_ns));
    if (rank.device)
      text += fmt::format("{:>16}{:>17}", ms_text(operation.device_self_ns), ms_text(operation.device_total_ns));
    if (flops && (operation.flops > 0 || !operation.group.empty()))
      text += fmt::format("{:>12}",
                          operation.flops > 0 ? fmt::format("{:.4g}", static_cast<double>(operation.flops) / 1e9) : "");
    if (!operation.group.empty()) text += "  " + operation.group;
    text += "\n";
  }
  return text + rest_text(rank.operations.size(), shown.size());
}

std::string units_text(const RankAnalysis& rank, size_t top) {
  if (rank.units.empty()) return "";
  std::string text = fmt::format("\n{:<{}}{:>9}{:>16}{:>16}{:>14}\n", "unit", kNameColumns + 2, "calls",
                                 rank.device ? "device fwd, ms" : "forward, ms",
                                 rank.device ? "device bwd, ms" : "backward, ms", "GFLOP/s");
  const size_t shown = std::min(top, rank.units.size());
  for (size_t i = 0; i < shown; ++i) {
    const Unit& unit = rank.units[i];
    const int64_t forward = rank.device ? unit.device_forward_ns : unit.forward_ns;
    const int64_t backward = rank.device ? unit.device_backward_ns : unit.backward_ns;
    // Operations per nanosecond are billions per second.
    const std::string speed =
        unit.flops > 0 && forward > 0
            ? fmt::format("{:.1f}", static_cast<double>(unit.flops) / static_cast<double>(forward))
            : "";
    text += fmt::format("  {}{:>9}{:>16}{:>16}{:>14}\n", padded_name(unit.name), unit.calls, ms_text(forward),
                        ms_text(backward), speed);
  }
  return text + rest_text(rank.units.size(), shown);
}

std::string kernels_text(const RankAnalysis& rank, size_t top) {
  if (rank.kernels.empty()) return "";
  std::string text = fmt::format("\n{:<{}}{:>9}{:>14}{:>12}{:>10}{:>12}{:>14}\n", "kernel", kNameColumns + 2, "calls",
                                 "total, ms", "mean, ms", "blocks", "occupancy", "tensor cores");
  const size_t shown = std::min(top, rank.kernels.size());
  for (size_t i = 0; i < shown; ++i) {
    const Kernel& kernel = rank.kernels[i];
    text += fmt::format(
        "  {}{:>9}{:>14}{:>12}{:>10}{:>12}{:>14}\n", padded_name(kernel.name), kernel.calls, ms_text(kernel.total_ns),
        ms_text(kernel.total_ns / kernel.calls), kernel.blocks < 0 ? "" : fmt::format("{:.0f}", kernel.blocks),
        kernel.occupancy < 0 ? "" : fmt::format("{:.0f} %", kernel.occupancy), to_text(kernel.tensor_cores));
  }
  return text + rest_text(rank.kernels.size(), shown);
}

std::string device_text(const RankAnalysis& rank) {
  if (!rank.device) return "";
  const DeviceTime& device = *rank.device;
  std::string text = fmt::format("\ndevice{}\n", rank.device_names.empty() ? "" : ": " + rank.device_names.front());
  text += fmt::format("  busy {} of {} ms, {:.1f} %; launch-bound {:.1f} %\n", ms_text(device.busy_ns),
                      ms_text(device.span_ns), percent(device.busy_ns, device.span_ns),
                      percent(device.launch_bound_ns(), device.span_ns));
  for (size_t i = 0; i < kIdleCauses; ++i)
    if (device.idle_ns[i] > 0)
      text += fmt::format("  idle, {:<10}{:>12} ms{:>7.1f} %\n", kIdleCauseNames[i], ms_text(device.idle_ns[i]),
                          percent(device.idle_ns[i], device.span_ns));
  for (const CopySpeed& copy : device.copies)
    text += fmt::format(
        "  copies {:<8}{:>12} ms   {}, {}{}\n", copy.direction, ms_text(copy.ns), fmt::format("{} calls", copy.calls),
        human_bytes(static_cast<double>(copy.bytes)),
        copy.ns > 0 ? fmt::format(", {:.1f} GB/s", static_cast<double>(copy.bytes) / static_cast<double>(copy.ns))
                    : "");
  return text;
}

std::string exchange_text(const Exchange& exchange) {
  if (exchange.ns == 0) return "";
  return fmt::format("\nexchange {} ms, of which {:.1f} % under compute\n", ms_text(exchange.ns),
                     percent(exchange.under_compute_ns, exchange.ns));
}

}  // namespace

std::string analysis_text(const TraceAnalysis& analysis, const AnalysisView& view) {
  AnalysisView limited = view;
  limited.top = view.top.value_or(kRowsOfText);
  std::string text;
  for (const RankAnalysis& rank : analysis.ranks) {
    if (!text.empty()) text += "\n";
    text += heading(rank, analysis.ranks.size() > 1) + breakdown_text(rank.breakdown);
    text += operations_text(rank, limited) + units_text(rank, *limited.top) + kernels_text(rank, *limited.top);
    text += device_text(rank) + exchange_text(rank.exchange);
  }
  return text;
}

}  // namespace trainopt::trace
