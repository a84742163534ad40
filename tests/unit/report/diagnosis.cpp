#include "report/diagnosis.h"

#include "base/files.h"
#include "report/recipe_differences.h"
#include "support/temporary_folder.h"

#include <catch2/catch.hpp>

#include <algorithm>

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

std::string summary(const std::string& wait, const std::string& forward, const std::string& update,
                    const std::string& gpu = "null") {
  return R"({"step_ms": {"mean": 10}, "data_wait_pct": )" + wait + R"(, "gpu_util_pct": )" + gpu +
         R"(, "phases_ms": {"forward": )" + forward + R"(, "backward": 2, "update": )" + update + "}}";
}

bool advises(const RunFolder& run, const std::string& what) {
  const auto all = advice_for(run);
  return std::any_of(all.begin(), all.end(), [&](const Advice& one) { return one.what.starts_with(what); });
}

}  // namespace

TEST_CASE("the largest part of a step is what limits a run") {
  CHECK(limit_of(run_with(summary("60", "1", "1")))->sentence == "The loader: the step waits for data.");
  CHECK(limit_of(run_with(summary("60", "1", "1")))->share_pct == 60);
  CHECK(limit_of(run_with(summary("1", "5", "1")))->sentence == "Computing: the forward and backward passes.");
  CHECK(limit_of(run_with(summary("1", "1", "6")))->sentence == "The update of the weights.");
  CHECK(limit_of(run_with(summary("1", "5", "1", "40")))->sentence.starts_with("The host: "));
  CHECK(limit_of(run_with(summary("1", "5", "1", "99")))->sentence.starts_with("Computing: "));
  CHECK(limit_of(run_with(summary("1", "5", "1"), "{}", R"({"step":1,"step_ms":10,"comm_exposed_ms":6})"))
            ->sentence.starts_with("Communication: "));
  // An idle GPU whose loader is slow waits for the loader, not for the host.
  CHECK(limit_of(run_with(summary("35", "3", "1", "60")))->sentence.starts_with("The loader: "));
  CHECK_FALSE(limit_of(run_with("{}")));
}

TEST_CASE("advice has evidence or is silent") {
  CHECK(advises(run_with(summary("60", "1", "1")), "Load with threads"));
  CHECK_FALSE(advises(run_with(summary("1", "5", "1")), "Load with threads"));
  CHECK(advice_for(run_with(summary("1", "5", "1"))).empty());
  CHECK(advice_for(run_with(R"({"status": "failed", "data_wait_pct": 60})")).empty());

  const std::string exposed = R"({"step":1,"step_ms":10,"comm_exposed_ms":6})";
  const auto ranks = advice_for(run_with(summary("1", "5", "1"), R"({"data": {"ranks": 2}})", exposed));
  REQUIRE(ranks.size() == 1);
  CHECK(ranks[0].evidence == "a step waits 6.00 ms of 10.0 ms for the other ranks");
  CHECK(ranks[0].command.starts_with("trainopt launch -n 2 -- compare "));

  const auto all = advice_for(
      run_with(summary("1", "5", "1"),
               R"({"unused_switches": [{"change": "optimizations.a=true"}, {"change": "optimizations.b=x"}]})"));
  REQUIRE(all.size() == 1);
  CHECK(all[0].what == "Measure what is off: a, b");
  CHECK(all[0].command.ends_with("recipe.yaml optimizations.a=true optimizations.b=x"));
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
