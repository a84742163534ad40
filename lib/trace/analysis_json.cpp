// The analysis as JSON and CSV.
#include "trace/analysis.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt::trace {
namespace {

double milliseconds(int64_t ns) { return static_cast<double>(ns) / 1e6; }

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

/// null for -1, which means unknown.
Json known(double value) { return value < 0 ? Json() : Json(value); }

size_t shown_of(size_t rows, const AnalysisView& view) { return std::min(rows, view.top.value_or(rows)); }

std::string_view kind_name(HostKind kind) {
  if (kind == HostKind::runtime) return "runtime";
  return kind == HostKind::annotation ? "user_annotation" : "cpu_op";
}

/// "shapes" or "unit"; empty if grouped by name alone.
std::string_view group_column(GroupBy group_by) {
  if (group_by == GroupBy::shape) return "shapes";
  return group_by == GroupBy::unit ? "unit" : "";
}

Json breakdown_json(const Breakdown& breakdown) {
  Json json = Json::object();
  for (size_t i = 0; i < kCategories; ++i) json[std::string(kCategoryNames[i])] = milliseconds(breakdown.ns[i]);
  return json;
}

Json operation_json(const Operation& operation, GroupBy group_by) {
  Json json = {{"name", operation.name}, {"kind", kind_name(operation.kind)}};
  if (group_by != GroupBy::name) json[std::string(group_column(group_by))] = operation.group;
  json["calls"] = operation.calls;
  json["cpu_self_ms"] = milliseconds(operation.cpu_self_ns);
  json["cpu_total_ms"] = milliseconds(operation.cpu_total_ns);
  json["device_self_ms"] = milliseconds(operation.device_self_ns);
  json["device_total_ms"] = milliseconds(operation.device_total_ns);
  json["flops"] = operation.flops;
  return json;
}

Json kernel_json(const Kernel& kernel) {
  return {{"name", kernel.name},
          {"calls", kernel.calls},
          {"total_ms", milliseconds(kernel.total_ns)},
          {"mean_ms", milliseconds(kernel.total_ns) / static_cast<double>(kernel.calls)},
          {"blocks", known(kernel.blocks)},
          {"occupancy_percent", known(kernel.occupancy)},
          {"tensor_cores", to_text(kernel.tensor_cores)}};
}

Json unit_json(const Unit& unit, bool device) {
  Json json = {{"name", unit.name},
               {"calls", unit.calls},
               {"forward_ms", milliseconds(unit.forward_ns)},
               {"backward_ms", milliseconds(unit.backward_ns)},
               {"device_forward_ms", nullptr},
               {"device_backward_ms", nullptr},
               {"flops", nullptr},
               {"flops_per_s", nullptr}};
  if (device) {
    json["device_forward_ms"] = milliseconds(unit.device_forward_ns);
    json["device_backward_ms"] = milliseconds(unit.device_backward_ns);
  }
  if (unit.flops == 0) return json;
  json["flops"] = unit.flops;
  const int64_t ns = device ? unit.device_forward_ns : unit.forward_ns;
  if (ns > 0) json["flops_per_s"] = static_cast<double>(unit.flops) / static_cast<double>(ns) * 1e9;
  return json;
}

Json device_json(const RankAnalysis& rank) {
  if (!rank.device) return {};
  const DeviceTime& device = *rank.device;
  Json json = {{"names", rank.device_names},
               {"span_ms", milliseconds(device.span_ns)},
               {"busy_ms", milliseconds(device.busy_ns)},
               {"idle_ms", Json::object()}};
  for (size_t i = 0; i < kIdleCauses; ++i)
    json["idle_ms"][std::string(kIdleCauseNames[i])] = milliseconds(device.idle_ns[i]);
  json["gaps"] = device.gaps;
  json["launch_bound_share"] = share(device.launch_bound_ns(), device.span_ns);
  json["copies"] = Json::array();
  for (const CopySpeed& copy : device.copies)
    json["copies"].push_back({{"direction", copy.direction},
                              {"calls", copy.calls},
                              {"bytes", copy.bytes},
                              {"ms", milliseconds(copy.ns)},
                              {"gb_per_s", share(copy.bytes, copy.ns)}});
  return json;
}

Json exchange_json(const Exchange& exchange) {
  if (exchange.ns == 0) return {};
  return {{"ms", milliseconds(exchange.ns)},
          {"under_compute_ms", milliseconds(exchange.under_compute_ns)},
          {"under_compute_share", share(exchange.under_compute_ns, exchange.ns)}};
}

Json rank_json(const RankAnalysis& rank, const TraceAnalysis& analysis, const AnalysisView& view) {
  Json json = Json::object();
  if (analysis.ranks.size() > 1) json["rank"] = rank.rank;
  json["wall_ms"] = milliseconds(rank.breakdown.wall_ns);
  json["breakdown_ms"] = breakdown_json(rank.breakdown);
  for (const char* list : {"operations", "kernels", "units"}) json[list] = Json::array();
  for (const Operation& operation : shown_operations(rank, view))
    json["operations"].push_back(operation_json(operation, analysis.group_by));
  for (size_t i = 0; i < shown_of(rank.kernels.size(), view); ++i)
    json["kernels"].push_back(kernel_json(rank.kernels[i]));
  for (size_t i = 0; i < shown_of(rank.units.size(), view); ++i)
    json["units"].push_back(unit_json(rank.units[i], rank.device.has_value()));
  json["device"] = device_json(rank);
  json["exchange"] = exchange_json(rank.exchange);
  json["steps"] = Json::array();
  for (const StepAnalysis& step : rank.steps)
    json["steps"].push_back({{"step", rank.labelled_steps ? Json(step.step) : Json()},
                             {"wall_ms", milliseconds(step.breakdown.wall_ns)},
                             {"breakdown_ms", breakdown_json(step.breakdown)}});
  return json;
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

}  // namespace

Json analysis_json(const TraceAnalysis& analysis, const AnalysisView& view) {
  if (analysis.ranks.size() == 1) return rank_json(analysis.ranks.front(), analysis, view);
  Json json = {{"ranks", Json::array()}};
  for (const RankAnalysis& rank : analysis.ranks) json["ranks"].push_back(rank_json(rank, analysis, view));
  return json;
}

std::string operations_csv(const TraceAnalysis& analysis, const AnalysisView& view) {
  const bool several = analysis.ranks.size() > 1;
  const std::string group(group_column(analysis.group_by));
  std::string csv = several ? "rank," : "";
  csv += "name,kind," + (group.empty() ? group : group + ",") +
         "calls,cpu_self_ms,cpu_total_ms,device_self_ms,device_total_ms,flops\n";
  for (const RankAnalysis& rank : analysis.ranks)
    for (const Operation& operation : shown_operations(rank, view)) {
      if (several) csv += fmt::format("{},", rank.rank);
      csv += fmt::format("{},{},", csv_field(operation.name), kind_name(operation.kind));
      if (!group.empty()) csv += csv_field(operation.group) + ",";
      csv += fmt::format("{},{:.6f},{:.6f},{:.6f},{:.6f},{}\n", operation.calls, milliseconds(operation.cpu_self_ns),
                         milliseconds(operation.cpu_total_ns), milliseconds(operation.device_self_ns),
                         milliseconds(operation.device_total_ns), operation.flops);
    }
  return csv;
}

}  // namespace trainopt::trace
