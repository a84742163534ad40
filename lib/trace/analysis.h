// The analysis of profiler traces: what `trainopt trace` prints. README.md defines every number.
//
//   const TraceAnalysis analysis = analyse_traces({"trace.json.gz"});
//   fputs(analysis_text(analysis).c_str(), stdout);
#pragma once

#include "base/json.h"
#include "trace/byte_source.h"
#include "trace/device_time.h"
#include "trace/kernels.h"
#include "trace/operations.h"
#include "trace/units.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainopt::trace {

struct AnalysisOptions {
  GroupBy group_by = GroupBy::name;     ///< how operations are grouped
  std::optional<int64_t> step;          ///< analyse only this step
  int64_t most_bytes = kMostJsonBytes;  ///< most bytes of a file's JSON; more are refused
};

struct StepAnalysis {
  int64_t step = 0;
  Breakdown breakdown;
};

struct RankAnalysis {
  int64_t rank = 0;
  bool labelled_steps = false;  ///< false: without `ProfilerStep#N`, the whole trace counts as one step
  std::vector<StepAnalysis> steps;
  Breakdown breakdown;  ///< the sum over `steps`
  std::vector<Operation> operations;
  std::vector<Kernel> kernels;
  std::vector<Unit> units;
  std::optional<DeviceTime> device;  ///< absent if the trace has no device events
  std::vector<std::string> device_names;
  Exchange exchange;
};

struct TraceAnalysis {
  std::vector<RankAnalysis> ranks;  ///< ascending, at least one
  GroupBy group_by = GroupBy::name;
};

/// Throws UserError(data) for a file that is not a trace (read_trace()), and UserError if it lacks `options.step`.
TraceAnalysis analyse_trace(const std::filesystem::path& path, const AnalysisOptions& options = {});

/// Several files, each with one or more ranks; one that does not say its rank gets the lowest free number, in the order
/// of the files. Throws UserError also for a file named twice, for two traces of the same rank, and for traces that
/// disagree about the number of ranks.
TraceAnalysis analyse_traces(const std::vector<std::filesystem::path>& paths, const AnalysisOptions& options = {});

struct AnalysisView {
  std::optional<SortBy> sort;  ///< operations' order; default: by device_self if there is a device, else by cpu_self
  std::optional<size_t> top;   ///< operations, kernels and units to show; default: all, 15 in the text
};

/// One rank: its object; several: {"ranks": [{"rank": 0, …}]}. Times in milliseconds.
Json analysis_json(const TraceAnalysis& analysis, const AnalysisView& view = {});
/// A page of text.
std::string analysis_text(const TraceAnalysis& analysis, const AnalysisView& view = {});
/// The operations as CSV (RFC 4180), with a header line; several ranks have a column `rank`.
std::string operations_csv(const TraceAnalysis& analysis, const AnalysisView& view = {});

}  // namespace trainopt::trace
