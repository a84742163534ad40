// Reading Chrome-trace JSON as Kineto writes it, in one pass.
#pragma once

#include "trace/byte_source.h"
#include "trace/events.h"

#include <filesystem>
#include <vector>

namespace trainopt::trace {

/// In merged traces (merge_traces()) the process p of rank r has the number r · kPidsPerRank + p.
constexpr int64_t kPidsPerRank = 1000000;

/// The ranks of a trace file, plain or gzip-compressed, in ascending order: one, except in a merged file. A trace that
/// does not say its rank (`distributedInfo`) gets rank 0. Needs memory for the compact events, not for the text. Throws
/// UserError(data) that names the file if it is missing, empty, truncated, damaged or not a trace, or has no events.
/// `most_bytes` of JSON: more are refused.
std::vector<RankTrace> read_trace(const std::filesystem::path& path, int64_t most_bytes = kMostJsonBytes);

}  // namespace trainopt::trace
