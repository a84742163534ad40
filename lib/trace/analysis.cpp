#include "trace/analysis.h"

#include "base/error.h"
#include "base/units.h"
#include "trace/event_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace trainopt::trace {
namespace {

namespace fs = std::filesystem;

/// Keeps only step `number`, and returns its window.
Interval choose_step(Steps& steps, int64_t number, const fs::path& path) {
  if (!steps.labelled)
    throw UserError(
        fmt::format("the trace has no ProfilerStep annotations, so no step can be chosen: {}", path.string()));
  const auto chosen =
      std::find_if(steps.all.begin(), steps.all.end(), [number](const Step& step) { return step.number == number; });
  if (chosen == steps.all.end())
    throw UserError(fmt::format("the trace has steps {} to {}, not step {}: {}", steps.all.front().number,
                                steps.all.back().number, number, path.string()));
  steps.all = {*chosen};
  return steps.all.front().window;
}

RankAnalysis analyse_rank(const RankTrace& trace, const AnalysisOptions& options, const fs::path& path) {
  Launches launches = find_launches(trace);
  const Nesting nesting = nest(trace, launches);
  Steps steps = find_steps(trace, nesting);
  Interval scope{INT64_MIN, INT64_MAX};
  if (options.step) scope = choose_step(steps, *options.step, path);

  RankAnalysis result;
  result.rank = trace.rank;
  result.labelled_steps = steps.labelled;
  const auto active = active_times(trace, steps);
  for (const Step& step : steps.all) {
    result.steps.push_back({step.number, break_down(active, step.window)});
    const Breakdown& one = result.steps.back().breakdown;
    result.breakdown.wall_ns += one.wall_ns;
    for (size_t i = 0; i < kCategories; ++i) result.breakdown.ns[i] += one.ns[i];
  }
  result.operations = list_operations(trace, nesting, scope, options.group_by);
  result.kernels = list_kernels(trace, launches, scope);
  result.units = list_units(trace, nesting, launches, scope);
  result.exchange = measure_exchange(trace, steps);
  result.device_names = trace.device_names;
  if (!trace.device.empty()) result.device = measure_devices(trace, launches, scope);
  return result;
}

void refuse_repeated(const std::vector<fs::path>& paths) {
  std::error_code ignored;  // reading a file that is missing reports it better
  for (size_t i = 0; i < paths.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (fs::equivalent(paths[i], paths[j], ignored))
        throw UserError(fmt::format("the same trace is named twice; name one file per rank: {}", paths[i].string()));
}

/// Traces that can belong together, as far as they say.
class TracesOfJob {
 public:
  /// Throws UserError for a trace that cannot be of the same recording as those before.
  void add(const RankTrace& trace, const fs::path& path) {
    if (trace.ranks) {
      if (ranks_ && *ranks_ != *trace.ranks)
        throw UserError(fmt::format("the traces are of different jobs, one of {} and one of {}: {} and {}",
                                    counted(*ranks_, "rank"), counted(*trace.ranks, "rank"), ranks_from_.string(),
                                    path.string()));
      ranks_ = trace.ranks;
      ranks_from_ = path;
    }
    if (!trace.says_rank) return;
    const auto [other, is_new] = of_rank_.emplace(trace.rank, path);
    if (!is_new)
      throw UserError(fmt::format("two traces are of rank {}; name one file per rank of one recording: {} and {}",
                                  trace.rank, other->second.string(), path.string()));
  }

  /// The lowest number that no trace has. Call after all add().
  int64_t take_free_rank() {
    int64_t rank = 0;
    while (of_rank_.contains(rank)) ++rank;
    of_rank_.emplace(rank, fs::path());
    return rank;
  }

 private:
  std::map<int64_t, fs::path> of_rank_;
  std::optional<int64_t> ranks_;
  fs::path ranks_from_;
};

}  // namespace

TraceAnalysis analyse_trace(const fs::path& path, const AnalysisOptions& options) {
  return analyse_traces({path}, options);
}

TraceAnalysis analyse_traces(const std::vector<fs::path>& paths, const AnalysisOptions& options) {
  refuse_repeated(paths);
  TraceAnalysis all;
  all.group_by = options.group_by;
  TracesOfJob job;
  std::vector<size_t> without_rank;
  for (const fs::path& path : paths) {
    auto ranks = read_trace(path, options.most_bytes);
    for (RankTrace& trace : ranks) {
      job.add(trace, path);
      if (!trace.says_rank) without_rank.push_back(all.ranks.size());
      all.ranks.push_back(analyse_rank(trace, options, path));
      trace = {};  // each rank's events are large
    }
  }
  for (const size_t i : without_rank) all.ranks[i].rank = job.take_free_rank();
  std::sort(all.ranks.begin(), all.ranks.end(),
            [](const RankAnalysis& a, const RankAnalysis& b) { return a.rank < b.rank; });
  return all;
}

// The analysis as JSON and CSV.

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

/// The operations in the order and number that `view` asks for.
std::vector<Operation> shown_operations(const RankAnalysis& rank, const AnalysisView& view) {
  auto operations = rank.operations;
  sort_operations(operations, view.sort.value_or(rank.device ? SortBy::device_self : SortBy::cpu_self));
  if (view.top && *view.top < operations.size()) operations.resize(*view.top);
  return operations;
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

// The analysis as a page of text.

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
