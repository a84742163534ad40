#include "trace/analysis.h"

#include "trace/read_trace.h"

#include "base/counted.h"
#include "base/error.h"

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

std::vector<Operation> shown_operations(const RankAnalysis& rank, const AnalysisView& view) {
  auto operations = rank.operations;
  sort_operations(operations, view.sort.value_or(rank.device ? SortBy::device_self : SortBy::cpu_self));
  if (view.top && *view.top < operations.size()) operations.resize(*view.top);
  return operations;
}

}  // namespace trainopt::trace
