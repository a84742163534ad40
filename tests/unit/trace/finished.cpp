#include "trace/finished_trace.h"

#include "events.h"
#include "support/catch.h"
#include "support/file_faults.h"
#include "trace/byte_source.h"

#include <istream>

namespace trainopt::trace {
namespace {

/// With lines as libtorch writes them.
std::string raw_text() { return "{\n  \"schemaVersion\": 1,\n  \"traceEvents\": [\n  ]\n}\n"; }

std::vector<std::string> names_in(const TemporaryFolder& folder) {
  return names_in_folder(folder.path(), ExitCode::storage);
}

}  // namespace

TEST_CASE("a finished trace says its rank, and the raw one is gone", "[trace]") {
  const TemporaryFolder folder;
  finish_trace(stored(folder, "raw.json", raw_text()), folder / "trace.json.gz", {.rank = 1, .ranks = 2});
  CHECK(names_in(folder) == std::vector<std::string>{"trace.json.gz"});
  ByteSource bytes(folder / "trace.json.gz");
  std::istream stream(&bytes);
  const Json trace = Json::parse(stream);
  CHECK(trace["distributedInfo"] == Json{{"rank", 1}, {"world_size", 2}});
  CHECK(trace["schemaVersion"] == 1);
}

TEST_CASE("a trace that cannot be finished leaves nothing and says why", "[trace]") {
  const TemporaryFolder folder;
  const auto raw = stored(folder, "raw.json", raw_text());
  {
    FaultAt full(2, FaultKind::from_then_on, ENOSPC);  // after the removal of an older temporary file
    const ScopedFileFaults installed(full);
    CHECK_THROWS_WITH(finish_trace(raw, folder / "trace.json.gz", {}),
                      ContainsSubstring("cannot write") && ContainsSubstring("No space left on device"));
  }
  CHECK(names_in(folder).empty());

  // Cut after the end of an event's arguments.
  const auto cut = stored(folder, "raw.json", "{\n  \"traceEvents\": [\n  {\n    \"args\": {\n    }");
  CHECK_THROWS_WITH(finish_trace(cut, folder / "trace.json.gz", {}), ContainsSubstring("the trace is incomplete"));
  CHECK(names_in(folder).empty());
}

}  // namespace trainopt::trace
