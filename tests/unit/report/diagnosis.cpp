#include "report/diagnosis.h"

#include "base/files/files.h"
#include "report/recipe_differences.h"
#include "support/temporary_folder.h"

#include <catch2/catch.hpp>

using namespace trainopt;
using namespace trainopt::report;

namespace {

RunFolder run_with(const std::string& summary, const std::string& plan = "{}",
                   const std::string& line = "{\"step\":1,\"step_ms\":10}") {
  const TemporaryFolder folder;
  write_file(folder.path() / "summary.json", summary);
  write_file(folder.path() / "plan.json", plan);
  write_file(folder.path() / "metrics.jsonl", line + "\n");
  write_file(folder.path() / "recipe.yaml", "data: {num_workers: 0}\n");
  return read_run(folder.path(), 64);
}

const std::string kLoader = R"({"limit": {"name": "loader", "text": "loader: 60 % of the time waiting for data",
  "what": "waiting for data", "evidence": "2 loader threads", "share_pct": 60, "noise_pct": 1,
  "parts": [{"name": "loader", "share_pct": 60}, {"name": "compute", "share_pct": 30}]},
  "advice": [{"what": "load with more threads", "change": ["data.num_workers=4"], "estimated_ratio": 1.5,
              "evidence": "loader is 60 % of the time", "needs": "", "command": "trainopt compare x.yaml"}]})";
const std::string kNothing = R"({"limit": {"name": "nothing", "text": "nothing stands out: too few steps",
  "what": "", "evidence": "", "share_pct": null, "noise_pct": null, "parts": []}, "advice": []})";

}  // namespace

TEST_CASE("the page says what the run's summary says limits it") {
  const auto limit = limit_of(run_with(kLoader));
  REQUIRE(limit);
  CHECK(limit->sentence == "Loader: waiting for data.");
  CHECK(limit->evidence == "2 loader threads");
  CHECK(limit->share_pct == 60);
  REQUIRE(limit->parts.size() == 3);
  CHECK(limit->parts[2].name == "other");
  CHECK(limit->parts[2].share_pct == 10);
  CHECK(limit_of(run_with(kNothing))->sentence == "Nothing stands out: too few steps.");
  CHECK_FALSE(limit_of(run_with("{}")));
  CHECK_FALSE(limit_of(run_with(R"({"limit": null})")));
  CHECK(limit_of(run_with(R"({"limit": {"parts": 3, "share_pct": "x"}})"))->parts.size() == 1);  // not our file
}

TEST_CASE("advice has evidence or is silent") {
  const auto loader = advice_for(run_with(kLoader));
  REQUIRE(loader.size() == 2);
  CHECK(loader[0].what == "Load with more threads");
  CHECK(loader[0].evidence == "loader is 60 % of the time; estimated +50.0 %");
  CHECK(loader[0].command == "trainopt compare x.yaml");
  CHECK(loader[1].command.starts_with("trainopt data bench "));
  CHECK(advice_for(run_with(kNothing)).empty());
  CHECK(advice_for(run_with(R"({"status": "failed", "advice": [{"what": "x"}]})")).empty());

  const auto all = advice_for(run_with(
      kNothing, R"({"unused_switches": [{"change": "optimizations.a=true"}, {"change": "optimizations.b=x"}]})"));
  REQUIRE(all.size() == 1);
  CHECK(all[0].what == "Measure what is off: a, b");
  CHECK(all[0].command.ends_with("recipe.yaml optimizations.a=true optimizations.b=x"));
  const auto busy = advice_for(run_with(kNothing, "{}", R"({"step":1,"step_ms":10,"other_cpu_pct":50})"));
  REQUIRE(busy.size() == 1);
  CHECK(busy[0].what == "Measure on a quiet machine");
}

TEST_CASE("recipes differ key by key") {
  const Json left = parse_json(R"({"run_dir": "a", "data": {"batch_size": 8, "path": null}, "amp": false, "old": 1})");
  const Json right =
      parse_json(R"({"run_dir": "b", "data": {"batch_size": 16, "path": null}, "amp": {"dtype": "bfloat16"}})");
  const auto differences = recipe_differences(left, right);
  REQUIRE(differences.size() == 3);
  CHECK(differences[0].key == "data.batch_size");
  CHECK(differences[0].left == "8");
  CHECK(differences[0].right == "16");
  CHECK(differences[1].key == "amp");
  CHECK(differences[1].right == R"({"dtype":"bfloat16"})");
  CHECK(differences[2].key == "old");
  CHECK(differences[2].right == "–");
  CHECK(recipe_differences(left, left).empty());
}
