#include "trace/finished_trace.h"

#include "events.h"
#include "support/catch.h"
#include "trace/byte_source.h"
#include "trace/event_reader.h"

#include <istream>

namespace trainopt::trace {
namespace {

Json merged_json(const std::filesystem::path& path) {
  ByteSource bytes(path);
  std::istream stream(&bytes);
  return Json::parse(stream);
}

}  // namespace

TEST_CASE("merging the traces of two ranks", "[trace]") {
  const TemporaryFolder folder;
  const auto first = stored(
      folder, "0.json",
      trace_text(
          {R"({"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "ts": 1.000, "args": {"name": "train \"x\""}})",
           operation("aten::add", 10, 5, R"("External id": 1, "Input Dims": [[4, 3], []])"),
           R"({"ph": "s", "id": 8, "pid": 100, "tid": 7, "ts": 10, "cat": "fwdbwd", "name": "fwdbwd"})"},
          R"("deviceProperties": [{"name": "A"}], "baseTimeNanoseconds": 1000000, )"));
  const auto second =
      stored(folder, "1.json",
             trace_text({operation("aten::mul", 10, 5, R"("External id": 1)"),
                         R"({"ph": "X", "cat": "Trace", "name": "t", "pid": "Spans", "tid": "x", "ts": 1, "dur": 1})",
                         kernel("gemm", 20, 5, R"("External id": 1, "ok": true, "none": null)")},
                        R"("deviceProperties": [{"name": "B"}], "baseTimeNanoseconds": 3000000, )"));
  merge_traces({first, second}, folder / "all.json.gz");

  const Json all = merged_json(folder / "all.json.gz");
  REQUIRE(all["traceEvents"].size() == 6);
  CHECK(all["traceEvents"][0]["args"]["name"] == "rank 0: train \"x\"");
  CHECK(all["traceEvents"][1] ==
        Json::parse(operation("aten::add", 10, 5, R"("External id": 1, "Input Dims": [[4, 3], []])")));
  CHECK(all["traceEvents"][2]["id"] == 8);
  // Rank 1 counts from 2 ms later.
  CHECK(all["traceEvents"][3]["ts"] == 2010.0);
  CHECK(all["traceEvents"][3]["pid"] == 1000100);
  CHECK(all["traceEvents"][4]["pid"] == "rank 1: Spans");
  CHECK(all["traceEvents"][5]["pid"] == 1000000);
  CHECK(all["traceEvents"][5]["args"] == Json{{"External id", 1}, {"ok", true}, {"none", nullptr}});
  CHECK(all["ranks"][1]["deviceProperties"][0]["name"] == "B");

  // Taken apart again, each rank is as in its own file.
  const auto ranks = read_trace(folder / "all.json.gz");
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[1].rank == 1);
  CHECK(ranks[1].device_names == std::vector<std::string>{"B"});
  REQUIRE(ranks[1].device.size() == 1);
  CHECK(ranks[1].device[0].device == 0);
  CHECK(ranks[1].host[0].start_ns == 2010000);
  const auto analysis = analyse_trace(folder / "all.json.gz");
  CHECK(analysis.ranks[1].operations.at(0).device_self_ns == 5000);
  CHECK(analysis.ranks[0].operations.at(0).device_self_ns == 0);
}

TEST_CASE("what a trace says besides its events is kept per rank", "[trace]") {
  // As Kineto writes it, before and after the events.
  const std::string before = R"("deviceProperties": [
    ], "trace_id": "23:\\36 \"B\"", "with_flops": 1, "share": 0.25, "none": {}, "distributedInfo": {"backend": "gloo",
    "rank": 1, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}, []]}, )";
  std::string text = trace_text({operation("aten::add", 10, 5)}, before);
  text.replace(text.size() - 1, 1, R"(, "ERROR": ["a: ", "b"], "traceName": "x.json"})");
  const TemporaryFolder folder;
  const auto one = stored(folder, "1.json", text);
  merge_traces({one, one}, folder / "all.json.gz");
  Json expected = Json::parse(text);
  expected.erase("traceEvents");
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    Json described = merged_json(folder / "all.json.gz")["ranks"][rank];
    CHECK(described["rank"] == rank);
    described.erase("rank");
    CHECK(described == expected);
  }
  CHECK(read_trace(folder / "all.json.gz").size() == 2);
}

TEST_CASE("a merge that fails leaves nothing", "[trace]") {
  const TemporaryFolder folder;
  const auto good = stored(folder, "0.json", trace_text({operation("aten::add", 10, 5)}));
  const auto bad = stored(folder, "1.json", "{}");
  CHECK_THROWS_AS(merge_traces({good, bad}, folder / "all.json.gz"), UserError);
  CHECK_FALSE(std::filesystem::exists(folder / "all.json.gz"));
  CHECK_THROWS_AS(merge_traces({folder / "absent"}, folder / "all.json.gz"), UserError);
}

TEST_CASE("an array of events alone can be merged", "[trace]") {
  const TemporaryFolder folder;
  const auto plain = stored(folder, "0.json", "[" + operation("a", 1, 2) + "," + operation("b", 5, 2) + "]");
  merge_traces({plain, plain}, folder / "all.json.gz");
  const auto ranks = read_trace(folder / "all.json.gz");
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[1].host.size() == 2);
}

}  // namespace trainopt::trace
