#include "events.h"
#include "support/catch.h"
#include "trace/finished_trace.h"

namespace trainopt::trace {
namespace {

TraceAnalysis small_analysis(const AnalysisOptions& options = {}) {
  const TemporaryFolder folder;
  const auto path =
      stored(folder, "a.json",
             trace_text({annotation("ProfilerStep#3", 0, 1000), annotation("unit::net, \\\"x\\\"", 100, 400),
                         operation("aten::mm", 150, 200, R"("External id": 1, "Input Dims": [[4, 3], [3, 5]])"),
                         launch(1, 300, 10, R"(, "External id": 1)"),
                         kernel("s884gemm", 600, 120, R"("External id": 1, "correlation": 1, "grid": [2, 1, 1])")},
                        R"("deviceProperties": [{"name": "NVIDIA H100"}], )"));
  return analyse_trace(path, options);
}

}  // namespace

TEST_CASE("the analysis as JSON", "[trace]") {
  const Json json = analysis_json(small_analysis());
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"wall_ms", "breakdown_ms", "operations", "kernels", "units", "device",
                                         "exchange", "steps"});
  CHECK(json["wall_ms"] == 1.0);
  // cpu 0.4 without the launch.
  CHECK(json["breakdown_ms"] == Json{{"kernel", 0.12},
                                     {"memcpy", 0.0},
                                     {"memset", 0.0},
                                     {"communication", 0.0},
                                     {"runtime", 0.01},
                                     {"loader", 0.0},
                                     {"cpu", 0.39},
                                     {"other", 0.48}});
  CHECK(json["operations"][0] == Json{{"name", "aten::mm"},
                                      {"kind", "cpu_op"},
                                      {"calls", 1},
                                      {"cpu_self_ms", 0.19},
                                      {"cpu_total_ms", 0.2},
                                      {"device_self_ms", 0.12},
                                      {"device_total_ms", 0.12},
                                      {"flops", 120}});
  CHECK(json["kernels"] == Json::array({Json{{"name", "s884gemm"},
                                             {"calls", 1},
                                             {"total_ms", 0.12},
                                             {"mean_ms", 0.12},
                                             {"blocks", 2.0},
                                             {"occupancy_percent", nullptr},
                                             {"tensor_cores", "yes"}}}));
  CHECK(json["units"][0]["name"] == "net, \"x\"");
  CHECK(json["units"][0]["flops_per_s"] == 1e6);
  CHECK(json["device"]["names"] == Json{"NVIDIA H100"});
  CHECK(json["exchange"].is_null());
  CHECK(json["steps"] == Json::array({Json{{"step", 3}, {"wall_ms", 1.0}, {"breakdown_ms", json["breakdown_ms"]}}}));
  AnalysisView view;
  view.top = 2;
  view.sort = SortBy::cpu_total;
  const Json two = analysis_json(small_analysis(), view)["operations"];
  REQUIRE(two.size() == 2);
  CHECK(two[0]["name"] == "ProfilerStep*");
}

TEST_CASE("the operations as CSV", "[trace]") {
  AnalysisOptions options;
  options.group_by = GroupBy::unit;
  AnalysisView view;
  view.sort = SortBy::cpu_total;
  CHECK(operations_csv(small_analysis(options), view) ==
        "name,kind,unit,calls,cpu_self_ms,cpu_total_ms,device_self_ms,device_total_ms,flops\n"
        "ProfilerStep*,user_annotation,,1,0.600000,1.000000,0.000000,0.120000,0\n"
        "\"unit::net, \"\"x\"\"\",user_annotation,\"unit::net, \"\"x\"\"\",1,0.200000,0.400000,0.000000,0.120000,0\n"
        "aten::mm,cpu_op,\"unit::net, \"\"x\"\"\",1,0.190000,0.200000,0.120000,0.120000,120\n"
        "cudaLaunchKernel,runtime,\"unit::net, \"\"x\"\"\",1,0.010000,0.010000,0.000000,0.000000,0\n");
}

TEST_CASE("the analysis as text", "[trace]") {
  const std::string text = analysis_text(small_analysis());
  CHECK(text.starts_with("step 3, 1.000 ms of wall time\n  kernel                0.120 ms   12.0 %  ####\n"));
  for (const char* part :
       {"aten::mm", "device self, ms", "s884gemm", "device: NVIDIA H100", "busy 0.120 of 0.120 ms", " 1.2e-07\n"})
    CHECK_THAT(text, ContainsSubstring(part));
  const TemporaryFolder folder;
  const std::string host = analysis_text(analyse_trace(stored(folder, "a.json", trace_text({operation("a", 0, 1)}))));
  for (const char* part : {"device", "kernel", "unit", "exchange", "GFLOP"}) CHECK_THAT(host, !ContainsSubstring(part));
}

TEST_CASE("several files are several ranks", "[trace]") {
  const TemporaryFolder folder;
  const auto rank = [&](int number, const std::string& name) {
    const std::string members = number < 0 ? "" : fmt::format(R"("distributedInfo": {{"rank": {}}}, )", number);
    return stored(folder, name + ".json", trace_text({operation(name, 0, 1)}, members));
  };
  const auto names = [](const TraceAnalysis& analysis) {
    std::string all;
    for (const RankAnalysis& one : analysis.ranks) all += fmt::format("{}{}", one.rank, one.operations.at(0).name);
    return all;
  };
  CHECK(names(analyse_traces({rank(1, "a"), rank(0, "b")})) == "0b1a");    // as the files say
  CHECK(names(analyse_traces({rank(-1, "a"), rank(-1, "b")})) == "0a1b");  // as they are named
  CHECK(names(analyse_traces({rank(-1, "a"), rank(0, "b"), rank(-1, "c")})) == "0b1a2c");
  const auto analysis = analyse_traces({rank(1, "a"), rank(0, "b")});
  const Json json = analysis_json(analysis);
  REQUIRE(json["ranks"].size() == 2);
  CHECK(json["ranks"][1]["rank"] == 1);
  CHECK_THAT(analysis_text(analysis), ContainsSubstring("rank 1: the whole trace"));
  CHECK_THAT(operations_csv(analysis), ContainsSubstring("\n1,a,cpu_op,1,"));
}

TEST_CASE("files that cannot be the ranks of one job are refused", "[trace]") {
  const TemporaryFolder folder;
  const auto rank = [&](int number, int ranks, const std::string& name) {
    const auto members = fmt::format(R"("distributedInfo": {{"rank": {}, "world_size": {}}}, )", number, ranks);
    return stored(folder, name, trace_text({operation("a", 0, 1)}, members));
  };
  const auto first = rank(0, 2, "first"), second = rank(1, 2, "second"),
             foreign = stored(folder, "foreign", "[" + operation("a", 0, 1) + "]");
  CHECK(analyse_traces({second, first}).ranks.size() == 2);
  CHECK_THROWS_WITH(analyse_traces({foreign, second, foreign}), ContainsSubstring("named twice"));
  CHECK_THROWS_WITH(analyse_traces({first, rank(0, 2, "other")}),
                    ContainsSubstring("two traces are of rank 0") && ContainsSubstring("other"));
  CHECK_THROWS_WITH(analyse_traces({first, rank(1, 4, "of four")}),
                    ContainsSubstring("one of 2 ranks and one of 4 ranks"));
  merge_traces({first, second}, folder / "merged");
  CHECK(analyse_traces({folder / "merged", rank(2, 2, "third")}).ranks.size() == 3);
  CHECK_THROWS_WITH(analyse_traces({folder / "merged", second}), ContainsSubstring("two traces are of rank 1"));
  CHECK_THROWS_WITH(analyse_traces({folder / "merged", rank(2, 3, "of three")}), ContainsSubstring("one of 3 ranks"));
}

}  // namespace trainopt::trace
