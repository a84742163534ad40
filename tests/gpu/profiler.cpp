// Tests of the step's phases and of a trace that only a GPU can give.
#include "metrics/phases.h"
#include "recipes.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "trace/analysis.h"

using namespace trainopt;
using namespace trainopt::test;

TEST_CASE("forward, backward and update are timed on the device") {
  const Finished finished = train(small_recipe("cuda"));
  for (const StepRecord& row : finished.rows.rows) {
    double sum = 0;
    for (const Metric phase : PhaseSums::kPhases) {
      CHECK(row[phase].value() > 0);
      sum += *row[phase];
    }
    CHECK(sum <= *row[Metric::device_ms] + 0.1);
  }
}

TEST_CASE("of a CUDA graph only the update is timed by itself") {
  Recipe recipe = small_recipe("cuda");
  recipe.optimizations.cuda_graph = recipe.optimizations.fused_optimizer = true;
  const Finished finished = train(recipe);
  for (const StepRecord& row : finished.rows.rows) {
    CHECK_FALSE(row[Metric::forward_ms].has_value());
    CHECK(row[Metric::update_ms].value() > 0);
  }
}

TEST_CASE("a trace has kernels, which belong to units, and its categories add up") {
  const TemporaryFolder folder;
  Recipe recipe = small_recipe("cuda");
  recipe.profiler.on = true;
  recipe.profiler.options.record_shapes = true;
  Rows rows;
  Trainer(make_plan(recipe, detect_machine()), folder.path(), rows, never_stopped()).run();
  const auto analysis = trace::analyse_trace(folder.path() / "trace/rank0-step3.json.gz");
  REQUIRE(analysis.ranks.size() == 1);
  const trace::RankAnalysis& rank = analysis.ranks.front();
  CHECK(rank.steps.size() == 3);
  CHECK_FALSE(rank.kernels.empty());
  REQUIRE(rank.device.has_value());
  int64_t sum_ns = 0;
  for (const int64_t ns : rank.breakdown.ns) sum_ns += ns;
  CHECK(sum_ns == rank.breakdown.wall_ns);
  CHECK(rank.breakdown.ns[static_cast<size_t>(trace::Category::kernel)] > 0);
  const Json json = trace::analysis_json(analysis);
  REQUIRE_FALSE(json.at("units").empty());
  for (const Json& unit : json.at("units")) {
    INFO(unit.dump());
    CHECK(unit.at("device_forward_ms").get<double>() > 0);
    CHECK(unit.at("device_backward_ms").get<double>() > 0);
  }
}
