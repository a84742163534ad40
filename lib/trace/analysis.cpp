#include "trace/analysis.h"

#include "trace/read_trace.h"

#include "base/error.h"

#include <algorithm>
#include <set>

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
  result.exchange = measure_exchange(trace, steps, scope);
  result.device_names = trace.device_names;
  if (!trace.device.empty()) result.device = measure_devices(trace, launches, scope);
  return result;
}

}  // namespace

TraceAnalysis analyse_trace(const fs::path& path, const AnalysisOptions& options) {
  TraceAnalysis analysis;
  analysis.group_by = options.group_by;
  auto ranks = read_trace(path);
  for (RankTrace& trace : ranks) {
    analysis.ranks.push_back(analyse_rank(trace, options, path));
    trace = {};  // each rank's events are large
  }
  return analysis;
}

TraceAnalysis analyse_traces(const std::vector<fs::path>& paths, const AnalysisOptions& options) {
  TraceAnalysis all;
  all.group_by = options.group_by;
  for (const fs::path& path : paths)
    for (RankAnalysis& rank : analyse_trace(path, options).ranks) all.ranks.push_back(std::move(rank));
  std::set<int64_t> numbers;
  for (const RankAnalysis& rank : all.ranks) numbers.insert(rank.rank);
  if (numbers.size() < all.ranks.size())
    for (size_t i = 0; i < all.ranks.size(); ++i) all.ranks[i].rank = static_cast<int64_t>(i);
  std::sort(all.ranks.begin(), all.ranks.end(),
            [](const RankAnalysis& a, const RankAnalysis& b) { return a.rank < b.rank; });
  return all;
}

std::vector<Operation> shown_operations(const RankAnalysis& rank, const AnalysisView& view) {
  auto operations = rank.operations;
  sort_operations(operations, view.sort.value_or(rank.device ? SortBy::device_self : SortBy::cpu_self));
  if (view.top && *view.top < operations.size()) operations.resize(*view.top);
  return operations;
}

}  // namespace trainopt::trace
