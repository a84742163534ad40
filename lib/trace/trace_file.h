// One trace file from those of several ranks.
#pragma once

#include <filesystem>
#include <vector>

namespace trainopt::trace {

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
