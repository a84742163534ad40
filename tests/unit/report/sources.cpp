#include "report/sources.h"

#include "base/files/files.h"
#include "support/temporary_folder.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sys/stat.h>

using namespace trainopt;
using namespace trainopt::report;

namespace {

std::string step_line(int64_t step, double step_ms) {
  return fmt::format(
      "{{\"step\":{},\"step_ms\":{},\"data_wait_ms\":1,\"forward_ms\":2,\"backward_ms\":3,\"update_ms\":1,"
      "\"loss\":0.5,\"gpu_throttle\":{}}}\n",
      step, step_ms, step == 2 ? 4 : 0);
}

}  // namespace

TEST_CASE("a run directory is read with what it has") {
  const TemporaryFolder folder;
  std::string lines;
  for (int64_t step = 1; step <= 10; ++step) lines += step_line(step, 10);
  write_file(folder.path() / "metrics.jsonl", lines);
  write_file(folder.path() / "summary.json", R"({"name": "job", "left_out_steps": 4, "profiler": null})");
  write_file(folder.path() / "evaluations.jsonl", "{\"step\":5,\"loss\":0.25,\"top1_pct\":90}\n");
  write_file(folder.path() / "ranks.jsonl", "{\"step\":1,\"step_ms\":[9,9],\"busy_ms\":[4,8]}\n");
  const RunFolder run = read_run(folder.path(), 64);
  CHECK(run.ended());
  CHECK(run.name() == "job");
  CHECK(run.steps.steps() == 10);
  CHECK(run.steps.step_times().count() == 6);  // without the warm-up
  CHECK(run.steps.of(Metric::step_ms).count() == 10);
  CHECK(run.steps.rest_ms().columns().front().mean() == Approx(3));
  CHECK(run.steps.throttled_steps() == 1);
  CHECK(run.steps.throttle_bits() == 4);
  REQUIRE(run.evaluations.size() == 2);
  CHECK(run.evaluations[1].name == "top1_pct");
  REQUIRE(run.rank_ms.size() == 2);
  CHECK(run.rank_ms[1].name == "rank 1");
  CHECK(run.rank_ms[1].columns.columns().front().high == 8);
  CHECK(run.plan.is_null());
}

TEST_CASE("steps that the profiler slowed down do not count") {
  const TemporaryFolder folder;
  std::string lines;
  for (int64_t step = 1; step <= 12; ++step) lines += step_line(step, 10);
  write_file(folder.path() / "metrics.jsonl", lines);
  write_file(folder.path() / "summary.json",
             R"({"left_out_steps": 0, "profiler": {"steps": 6}, "resumed_from": null})");
  write_file(folder.path() / "recipe.yaml", "profiler: {wait: 2, warmup: 1, active: 2, repeat: 2}\n");
  // Steps 3, 4, 5 and 8, 9, 10 are profiled.
  CHECK(read_run(folder.path(), 64).steps.step_times().count() == 6);
}

TEST_CASE("damaged files are noted and the rest is read") {
  const TemporaryFolder folder;
  write_file(folder.path() / "summary.json", "{\"name\": \"job\", ");
  write_file(folder.path() / "recipe.yaml", "a: [\n");
  write_file(folder.path() / "metrics.jsonl", step_line(1, 10) + "{\"step\":2,\"st");
  const RunFolder run = read_run(folder.path(), 64);
  CHECK_FALSE(run.ended());
  CHECK(run.steps.steps() == 1);
  REQUIRE(run.notes.size() == 3);
  CHECK(run.notes[0].starts_with("summary.json cannot be read: parse error"));
  CHECK(run.notes[1].starts_with("recipe.yaml cannot be read: "));
  CHECK(run.notes[2] == "metrics.jsonl: the last line is cut off and was left out");
}

TEST_CASE("what is no regular file is left out, and the rest is read") {
  const TemporaryFolder folder;
  write_file(folder.path() / "summary.json", "[]");
  REQUIRE(mkfifo((folder.path() / "run.log").c_str(), 0600) == 0);
  create_folders(folder.path() / "evaluations.jsonl");
  std::filesystem::create_symlink("plan.json", folder.path() / "plan.json");
  write_file(folder.path() / "metrics.jsonl",
             step_line(1, 10) + step_line(3, 10) + step_line(2, 10) + "{\"step\":1e308,\"step_ms\":1}\n");
  const RunFolder run = read_run(folder.path(), 64);
  CHECK(run.steps.steps() == 2);
  REQUIRE(run.notes.size() == 5);
  CHECK(run.notes[0] == "summary.json is not a JSON object");
  CHECK(run.notes[1] == "metrics.jsonl: 1 step is out of order and left out");
  for (size_t i = 2; i < 5; ++i)
    CHECK(run.notes[i].find(" is not a regular file and was left out") != std::string::npos);
}

TEST_CASE("a resumed run warms up again, and its time goes on") {
  const TemporaryFolder folder;
  std::string lines;
  for (int64_t step = 1; step <= 10; ++step) lines += step_line(step, 10);
  write_file(folder.path() / "metrics.jsonl", lines);
  write_file(folder.path() / "summary.json", R"({"left_out_steps": 2, "resumed_from": 5, "profiler": null})");
  write_file(folder.path() / "telemetry.jsonl",
             "{\"time_s\":0,\"a\":1}\n{\"time_s\":4,\"a\":1}\n{\"time_s\":0,\"a\":1}\n{\"time_s\":3,\"a\":1}\n");
  const RunFolder run = read_run(folder.path(), 64);
  CHECK(run.warmup_end() == 7);
  CHECK(run.steps.step_times().count() == 3);
  REQUIRE(run.telemetry.size() == 1);
  const auto columns = run.telemetry[0].columns.columns();
  REQUIRE(columns.size() == 4);
  CHECK(columns[2].first == 4);
  CHECK(columns[3].first == 7);
}

TEST_CASE("a folder has its name however it is written") {
  for (const char* path : {"/runs/job", "/runs/job/", "/runs/./job/.", "/runs/other/../job/"})
    CHECK(folder_name(path) == "job");
  CHECK(folder_name(".") == std::filesystem::current_path().filename());
}

TEST_CASE("values are found by path") {
  const Json json = parse_json(R"({"a": {"b": [1, {"c": 2}]}})");
  CHECK(at(json, "a.b.0") == 1);
  CHECK(at(json, "a.b.1.c") == 2);
  for (const char* path : {"x", "a.b.2", "a.b.x", "a.b.0.c", "", "a..b", "a.b.1.c.d"}) CHECK(at(json, path).is_null());
}

TEST_CASE("folders are recognized") {
  const TemporaryFolder folder;
  const auto at_path = [&](const char* path, const char* text) {
    create_folders((folder.path() / path).parent_path());
    write_file(folder.path() / path, text);
  };
  at_path("run/summary.json", "{}");
  at_path("comparison/result.json", R"({"verdict": "pays", "arms": {}})");
  at_path("several/result.json", R"({"each": {}, "arms": []})");
  at_path("against/result.json", R"({"verdict": "pays", "no_verdict": null, "differences": []})");
  at_path("ablation/result.json", R"({"switches": []})");
  at_path("rate_range/result.json", R"({"rates": [], "suggestion": null})");
  at_path("ladder/10-all/summary.json", "{}");
  at_path("ladder/2a-pin/summary.json", "{}");
  at_path("ladder/2a-pin/compare.json", R"({"ratio": 1.1})");
  at_path("ladder/0-baseline/metrics.jsonl", "");
  at_path("damaged/result.json", "{");
  create_folders(folder.path() / "empty");

  const auto kind = [&](const char* name) {
    return std::get<ResultFolder>(read_sources({folder.path() / name}).front()).kind;
  };
  CHECK(std::holds_alternative<RunFolder>(read_sources({folder.path() / "run"}).front()));
  CHECK(kind("comparison") == ResultKind::comparison);
  CHECK(kind("several") == ResultKind::several_arms);
  CHECK(kind("against") == ResultKind::against);
  CHECK(kind("ablation") == ResultKind::ablation);
  CHECK(kind("rate_range") == ResultKind::rate_range);
  const auto sources = read_sources({folder.path() / "ladder"});
  const auto& rungs = std::get<LadderFolder>(sources.front()).rungs;
  REQUIRE(rungs.size() == 3);
  CHECK(rungs[0].run.path.filename() == "0-baseline");
  CHECK(rungs[1].run.path.filename() == "2a-pin");
  CHECK(rungs[2].run.path.filename() == "10-all");
  CHECK(rungs[0].against_previous.is_null());
  CHECK(at(rungs[1].against_previous, "ratio") == 1.1);
  for (const char* name : {"empty", "damaged", "nowhere"})
    CHECK_THROWS_AS(read_sources({folder.path() / name}), UserError);
}

TEST_CASE("a result that has no page is refused with its name and the file to read") {
  const TemporaryFolder folder;
  const auto refusal = [&](const char* name, const char* result) -> std::string {
    create_folders(folder.path() / name);
    write_file(folder.path() / name / "result.json", result);
    try {
      read_sources({folder.path() / name});
    } catch (const UserError& error) {
      CHECK(error.code() == ExitCode::data);
      return error.what();
    }
    return "it was read";
  };
  CHECK(refusal("until", R"({"kind": "until", "verdict": "pays", "arms": {"a": {}, "b": {}}, "pairs": []})") ==
        fmt::format("{0}/until is the result of compare --until target, which has no page; read {0}/until/report.txt",
                    folder.path().string()));
  CHECK(refusal("parts", R"({"kind": "ablate until", "parts": []})").find("ablate --until target") !=
        std::string::npos);
  CHECK(refusal("tuned", R"({"ratio": 1.0, "change": [], "limits": [], "steps": []})").ends_with("tuned/steps.md"));
  CHECK(refusal("batch", R"({"largest": 8, "enough": 4, "sizes": []})").find("of find batch, which") !=
        std::string::npos);
  for (const char* unknown : {"{}", R"({"kind": 7, "arms": {}})", R"({"verdict": "pays"})"})
    CHECK(refusal("unknown", unknown).find("which alone have a page") != std::string::npos);
}
