#include "trace/trace_file.h"

#include "base/files.h"
#include "trace/event_copier.h"
#include "trace/read_trace.h"

namespace trainopt::trace {

void merge_traces(const std::vector<std::filesystem::path>& paths_by_rank, const std::filesystem::path& out) {
  replace_file(out, [&](File& file) {
    GzipWriter writer(file);
    // Before the events, because read_trace() needs it for them.
    writer.append(
        fmt::format("{{\"schemaVersion\": 1, \"pidsPerRank\": {}, \"displayTimeUnit\": \"ms\",\n"
                    "\"traceEvents\": [",
                    kPidsPerRank));
    std::optional<int64_t> base_ns;
    bool any = false;
    std::string descriptions;
    for (size_t rank = 0; rank < paths_by_rank.size(); ++rank) {
      EventCopier copier(paths_by_rank[rank], static_cast<int64_t>(rank), writer, base_ns, any);
      parse_trace_file(paths_by_rank[rank], copier);
      if (!copier.seen_events()) refuse_trace(paths_by_rank[rank], "not a trace: it is JSON, but has no traceEvents");
      descriptions += (rank == 0 ? "\n" : ",\n") + copier.description();
    }
    writer.append(
        fmt::format("\n],\n\"baseTimeNanoseconds\": {},\n\"ranks\": [{}\n]}}\n", base_ns.value_or(0), descriptions));
    writer.finish();
  });
}

}  // namespace trainopt::trace
