#include "trace/event_reader.h"

#include "events.h"
#include "support/catch.h"

#include <zlib.h>

namespace trainopt::trace {
namespace {

/// One gzip member.
std::string compressed(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string bytes(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

/// The message of the UserError(data), without the path.
std::string refusal(const std::string& name, const std::string& content) {
  const TemporaryFolder folder;
  const auto path = stored(folder, name, content);
  try {
    read_trace(path);
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::data);
    const std::string what = error.what();
    CHECK(what.ends_with(": " + path.string()));
    return what.substr(0, what.size() - path.string().size() - 2);
  }
  return "";
}

const std::string kSmall = trace_text({operation("aten::add", 1, 2)});

}  // namespace

TEST_CASE("times keep their nanoseconds", "[trace]") {
  CHECK(nanoseconds_of("4628404622663.864") == 4628404622663864);
  CHECK(nanoseconds_of("1790857026000001.5") == 1790857026000001500);
  CHECK(nanoseconds_of("12") == 12000);
  CHECK(nanoseconds_of("0.1") == 100);
  CHECK(nanoseconds_of("0.0005") == 1);
  CHECK(nanoseconds_of("-1.25") == -1250);
  CHECK(nanoseconds_of("1.5e3") == 1500000);
  CHECK_THROWS_AS(nanoseconds_of("soon"), std::invalid_argument);
  CHECK_THROWS_AS(nanoseconds_of("1e300"), std::invalid_argument);
  CHECK(microseconds_text(4628404622663864) == "4628404622663.864");
  CHECK(microseconds_text(-1250) == "-1.250");
}

TEST_CASE("what a trace says of its events", "[trace]") {
  const TemporaryFolder folder;
  const std::string members =
      R"("schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 8}, {"name": "B"}],
         "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 4}, )";
  const auto ranks = read_trace(stored(
      folder, "a.json",
      trace_text(
          {R"({"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "args": {"name": "python"}})",
           R"({"ph": "X", "cat": "Trace", "ts": 1, "dur": 9, "pid": "Spans", "tid": "PyTorch Profiler", "name": "x"})",
           R"({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 100, "tid": 7, "ts": 5})",
           R"({"args": {"nested": {"External id": 9, "a": [1, {"ts": 4}]}, "External id": 5, )"
           R"("Input Dims": [[4, 3], [[1], []]]}, "tid": 7, "pid": 100, "dur": 0.25, "ts": 1000.5, )"
           R"("name": "aten::add", "cat": "cpu_op", "ph": "X"})",
           R"({"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 1, "tid": 20, "ts": 7, "dur": 2,)"
           R"( "args": {"bytes": 4096, "correlation": 12, "External id": 5, "stream": 20, "device": 1}})"},
          members)));
  REQUIRE(ranks.size() == 1);
  CHECK(ranks[0].rank == 3);
  CHECK(ranks[0].device_names == std::vector<std::string>{"NVIDIA H100", "B"});
  REQUIRE(ranks[0].host.size() == 1);
  const HostEvent& add = ranks[0].host[0];
  CHECK(add.start_ns == 1000500);
  CHECK(add.end_ns == 1000750);
  CHECK(add.id == 5);
  CHECK((*ranks[0].names)[add.shapes] == "[[4, 3], [[1], []]]");
  REQUIRE(ranks[0].device.size() == 1);
  const DeviceEvent& copy = ranks[0].device[0];
  CHECK(copy.kind == DeviceKind::copy);
  CHECK(copy.bytes == 4096);
  CHECK(copy.correlation == 12);
  CHECK(copy.device == 1);
}

TEST_CASE("compressed traces, and an array of events alone", "[trace]") {
  const TemporaryFolder folder;
  for (const std::string& content :
       {kSmall, compressed(kSmall), compressed(kSmall.substr(0, 40)) + compressed(kSmall.substr(40)),
        "[" + operation("aten::add", 1, 2) + "]"}) {
    const auto ranks = read_trace(stored(folder, "a", content));
    REQUIRE(ranks.size() == 1);
    REQUIRE(ranks[0].host.size() == 1);
    CHECK(ranks[0].name(ranks[0].host[0]) == "aten::add");
  }
  CHECK(read_trace(stored(folder, "a.json.gz", compressed(kSmall))).size() == 1);
}

TEST_CASE("a trace with more JSON than allowed is refused, however small its file", "[trace]") {
  const TemporaryFolder folder;
  const std::string large = kSmall.substr(0, kSmall.size() - 1) + std::string(100'000, ' ') + kSmall.back();
  for (const std::string& content : {large, compressed(large)}) {
    CHECK(read_trace(stored(folder, "a", content), 200'000).size() == 1);
    CHECK_THROWS_WITH(read_trace(stored(folder, "a", content), 50'000), ContainsSubstring("--max-json"));
  }
}

TEST_CASE("files that are no traces", "[trace]") {
  CHECK(refusal("a.json", "") == "the trace is empty");
  CHECK(refusal("a.json", kSmall.substr(0, kSmall.size() - 10)) == "the trace is truncated: its JSON ends too early");
  CHECK(refusal("a.json", R"({"traceEvents": [{"ph": "X", "na)") == "the trace is truncated: its JSON ends too early");
  CHECK(refusal("a.json", "step 1, loss 2.3\n") == "not a trace: neither JSON nor gzip");
  CHECK(refusal("a.json", std::string("\x89PNG\r\n", 6)) == "not a trace: neither JSON nor gzip");
  CHECK(refusal("a.json", R"({"traceEvents": [], "b": nonsense})") == "not a trace: its JSON is invalid at byte 27");
  CHECK(refusal("a.json", R"({"loss": [1, 2]})") == "not a trace: it is JSON, but has no traceEvents");
  CHECK(refusal("a.json", R"({"traceEvents": {}})") == "not a trace: it is JSON, but has no traceEvents");
  CHECK(refusal("a.json", "7 ") == "not a trace: it is JSON, but has no traceEvents");
  CHECK(refusal("a.json", R"({"traceEvents": [1, "a", {"ph": "X", "cat": "other"}]})") ==
        "the trace has no events of the profiler");
  CHECK(refusal("a.json", R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "dur": 1}]})") ==
        "not a trace: event 1 has no time");
  CHECK(refusal("a.json", R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": "soon"}]})") ==
        "not a trace: event 1 has an impossible time");
  CHECK(refusal("a.json", R"({"traceEvents": [{"ph": "X", "args": {"correlation": "none"}}]})") ==
        "not a trace: event 1 has a text where a number belongs");
}

TEST_CASE("compressed files that are no traces", "[trace]") {
  const std::string whole = compressed(kSmall);
  CHECK(refusal("a.json.gz", kSmall) == "the trace's name ends in .gz, but it is not gzip-compressed");
  CHECK(refusal("a.json.gz", whole.substr(0, whole.size() - 12)) ==
        "the trace is truncated: its compressed data end too early");
  std::string damaged = whole;
  damaged[whole.size() - 6] = static_cast<char>(damaged[whole.size() - 6] ^ 0x55);  // in the checksum
  CHECK(refusal("a.json.gz", damaged) == "the trace's compressed data are damaged");
  CHECK(refusal("a.json.gz", compressed("nonsense")) == "not a trace: neither JSON nor gzip");
  CHECK_THROWS_AS(read_trace("/nonexistent/trace.json"), UserError);
}

}  // namespace trainopt::trace
