#include "trace/read_trace.h"

#include "trace/event_reader.h"

namespace trainopt::trace {

std::vector<RankTrace> read_trace(const std::filesystem::path& path, int64_t most_bytes) {
  EventReader reader(path);
  parse_trace_file(path, reader, most_bytes);
  if (!reader.seen_events()) refuse_trace(path, "not a trace: it is JSON, but has no traceEvents");
  auto ranks = reader.take_ranks();
  if (ranks.empty()) refuse_trace(path, "the trace has no events of the profiler");
  return ranks;
}

}  // namespace trainopt::trace
