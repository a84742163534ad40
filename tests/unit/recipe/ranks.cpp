// What a plan says about the settings of several ranks, and which are refused.
#include "recipe/make_plan.h"
#include "recipe/plan_text.h"
#include "recipe/resume.h"
#include "recipe/validate.h"
#include "support/catch.h"

#include <functional>

using namespace trainopt;
using Catch::Matchers::Contains;

namespace {

Recipe with_nccl() {
  Recipe recipe;
  recipe.parallel.nccl = {.algo = "Ring,Tree", .buffer_size_mb = 4};
  return recipe;
}

/// The plan of the first rank of a job that `--assume` describes; empty: this process on a CPU.
Plan plan_for(const Recipe& recipe, const std::string& assumptions) {
  const Machine machine{.cpu = "test", .cores = 2};
  if (assumptions.empty()) return make_plan(recipe, machine);
  const AssumedJob job = assume(machine, assumptions);
  return make_plan(recipe, job.machine, job.position);
}

std::vector<std::string> problems_of(const Recipe& recipe) {
  std::vector<std::string> all;
  for (const auto& problem : validate(recipe)) all.push_back(problem.key + ": " + problem.message);
  return all;
}

}  // namespace

TEST_CASE("a plan for several GPUs shows NCCL's variables") {
  const Plan plan = plan_for(with_nccl(), "gpus=8,arch=sm_90,memory_gib=80");
  CHECK_THAT(plan_text(plan), Contains("NCCL_ALGO=Ring,Tree NCCL_BUFFSIZE=4194304"));
  CHECK(plan_json(plan)["nccl"] == Json({"NCCL_ALGO=Ring,Tree", "NCCL_BUFFSIZE=4194304"}));
  CHECK(!plan_json(plan_for(Recipe(), "gpus=8,arch=sm_90,memory_gib=80")).contains("nccl"));
}

TEST_CASE("an assumed job may have several machines, by default with a rank on each GPU") {
  const auto position = [](const std::string& assumptions) { return assume(Machine{}, assumptions).position; };
  CHECK(position("gpus=8,machines=2") == RankPosition{0, 16, 0, 8});
  CHECK(position("ranks=6,machines=3") == RankPosition{0, 6, 0, 2});
  CHECK(position("ranks=6") == RankPosition{0, 6, 0, 6});
  CHECK_THROWS_WITH(position("ranks=6,machines=4"), Contains("6 ranks, 4 machines"));
}

TEST_CASE("NCCL settings without NCCL are reported, and refused if strict") {
  const auto [assumptions, reason] =
      GENERATE(table<std::string, std::string>({{"ranks=2", "this plan runs on the CPU"},
                                                {"", "this plan runs on the CPU"},
                                                {"gpus=1,arch=sm_90,memory_gib=80", "there is only one rank"}}));
  Recipe recipe = with_nccl();
  const Plan plan = plan_for(recipe, assumptions);
  CHECK_THAT(plan_text(plan), Contains("note: parallel.nccl has no effect here: " + reason));
  CHECK(!plan_json(plan).contains("nccl"));
  recipe.strict = true;
  CHECK_THROWS_WITH(plan_for(recipe, assumptions),
                    Contains("parallel.nccl has no effect here, which strict: true forbids: " + reason));
}

TEST_CASE("on one rank, keys for several are named as the recipe writes them") {
  Recipe recipe;
  recipe.parallel.timeout = Duration{1800};
  recipe.parallel.bucket_cap_mb = 10;
  const std::string one = plan_text(plan_for(recipe, ""));
  CHECK_THAT(one, Contains("parallel.bucket_cap_mb no effect: there is only one rank, so nothing is exchanged"));
  CHECK_THAT(one, Contains("parallel.timeout   no effect: there is only one rank, so nothing is exchanged"));
  CHECK_THAT(one, !Contains("parallel.sharding_strategy"));
  const std::string two = plan_text(plan_for(recipe, "ranks=2"));
  CHECK_THAT(two, Contains("parallel.sharding_strategy DDP: each of 2 ranks holds the whole model"));
  CHECK_THAT(two, !Contains("parallel.timeout"));
}

TEST_CASE("NCCL settings that cannot be right are refused with their key") {
  Recipe recipe = with_nccl();
  recipe.parallel.nccl.algo = "Rnig";
  recipe.parallel.nccl.threads = 96;
  recipe.parallel.nccl.min_ctas = 8;
  recipe.parallel.nccl.max_ctas = 4;
  const auto problems = problems_of(recipe);
  REQUIRE(problems.size() == 2);
  CHECK_THAT(problems[0], Contains("parallel.nccl.algo: must be a list such as Ring,Tree") && Contains("'Rnig'"));
  CHECK(problems[1] == "parallel.nccl.min_ctas: must not be above max_ctas");
  Recipe on_cpu = with_nccl();
  on_cpu.device = "cpu";
  REQUIRE(problems_of(on_cpu).size() == 2);
  CHECK(problems_of(on_cpu)[0] == "parallel.nccl.algo: only NCCL on GPUs uses this; remove this key");
}

TEST_CASE("a comparison of replicas is planned, reported as useless, or refused") {
  Recipe recipe;
  recipe.parallel.check_replicas_every = 5;
  CHECK_THAT(
      plan_text(plan_for(recipe, "ranks=2")),
      Contains("weights compared over the ranks every 5 steps, before checkpoints and at the end; each time reads "));
  CHECK_THAT(plan_text(plan_for(recipe, "")), Contains("not compared: there is only one rank"));
  recipe.parallel.sharding_strategy = ShardingStrategy::zero3;
  REQUIRE(problems_of(recipe).size() == 1);
  CHECK_THAT(problems_of(recipe)[0],
             Contains("parallel.check_replicas_every: zero3 keeps each weight on one rank only"));
  recipe.parallel.sharding_strategy = ShardingStrategy::hybrid;
  REQUIRE(problems_of(recipe).size() == 1);
  CHECK_THAT(problems_of(recipe)[0], Contains("hybrid keeps each weight on one rank only of a machine"));
  recipe.parallel.sharding_strategy = ShardingStrategy::zero2;
  CHECK(problems_of(recipe).empty());
}

TEST_CASE("a resume reports what ranks do differently from the checkpoint if it may change numbers") {
  const Recipe stored{};
  const auto notes = [&](const std::function<void(ParallelConfig&)>& change) {
    Recipe now = stored;
    change(now.parallel);
    return check_resume(stored, now, 2, 2);
  };
  const auto note_of = [&](const auto& change) {
    const auto all = notes(change);
    REQUIRE(all.size() == 1);
    return all[0];
  };
  const std::string begin = "differs from the checkpoint, so numbers may change from now on: parallel.";
  CHECK(note_of([](auto& c) { c.sync_batch_norm = true; }) == begin + "sync_batch_norm: true, was false");
  CHECK_THAT(note_of([](auto& c) { c.gradient_dtype = WireType::bfloat16; }),
             Contains(begin + "gradient_dtype: \"bfloat16\", was"));
  CHECK(note_of([](auto& c) { c.sharding_strategy = ShardingStrategy::zero3; }) ==
        begin + "sharding_strategy: \"zero3\", was \"none\"");
  CHECK(note_of([](auto& c) { c.pipeline.schedule = PipelineSchedule::gpipe; }) ==
        begin + "pipeline.schedule: \"gpipe\", was \"1f1b\"");
  CHECK(notes([](auto& c) { c.check_replicas_every = 3, c.timeout = Duration{9}; }).empty());
}
