// Completes a trace that libtorch's profiler has written: rank, call stacks, compression.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace trainopt::trace {

struct TraceOrigin {
  int64_t rank = 0, ranks = 1;
  /// Give each operation the argument "Call stack": the names of the labels around it, outermost first, separated by
  /// semicolons, as torch.profiler writes the frames of a Python stack.
  bool call_stacks = false;
};

/// Reads `raw`, writes it to `finished` compressed with gzip and with "distributedInfo" as torch.profiler writes it,
/// and removes `raw`, also if it fails. Throws UserError(storage).
void finish_trace(const std::filesystem::path& raw, const std::filesystem::path& finished, const TraceOrigin& origin);

// One trace file from those of several ranks.

/// Merges one trace per rank (the position in `paths_by_rank` is the rank) into one gzip-compressed file, which
/// replaces `out` atomically. Perfetto and chrome://tracing show it, read_trace() takes it apart again.
///
/// Process p of rank r becomes r · kPidsPerRank + p % kPidsPerRank, process names begin with "rank r: ", and flow
/// arrows get numbers of their own. If the files count time from different moments (`baseTimeNanoseconds`), those of
/// later ranks are shifted to the first one's. What a file says besides its events is listed under `ranks`. Reads each
/// file once and needs constant memory. Throws UserError(data) for a file that is not a trace, UserError(storage) if
/// `out` cannot be written.
void merge_traces(const std::vector<std::filesystem::path>& paths_by_rank, const std::filesystem::path& out);

}  // namespace trainopt::trace
