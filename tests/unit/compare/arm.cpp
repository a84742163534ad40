#include "compare/arms/local_arm.h"
#include "compare/ceilings.h"
#include "device/tensor.h"
#include "support/catch.h"
#include "support/plans.h"
#include "support/temporary_folder.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

Plan endless(uint64_t seed = 3) {
  Plan plan = small_plan(1, seed);
  plan.steps.reset();
  return plan;
}

}  // namespace

TEST_CASE("two arms with one plan see the same batches and have the same losses in every turn") {
  const TemporaryFolder folder;
  LocalArm a(endless(), folder / "a"), b(endless(), folder / "b");
  for (int i = 0; i < 3; ++i) {
    const Turn of_a = a.turn(4), of_b = b.turn(4);
    CHECK(of_a.losses == of_b.losses);
    CHECK(of_a.samples == 32);
    CHECK(of_a.step_ms.size() == 4);
    CHECK(of_a.seconds > 0);
    CHECK(of_a.data_wait_s <= of_a.seconds);
  }
  CHECK(std::filesystem::exists(gradients_file(folder / "a")));
  CHECK(load_tensors(update_file(folder / "a")).size() == 5);  // four parameters, and kAlongWeights
  CHECK(a.facts().step_samples == 8);
  CHECK(a.facts().time_to_first_step_s > 0);
  REQUIRE(a.facts().ranks.size() == 1);
  const StepTrace& seen = a.trainer().outcome().trace;
  CHECK(a.facts().ranks[0].state_mib ==
        Approx(static_cast<double>(seen.parameter_bytes + seen.gradient_bytes + seen.optimizer_bytes) / 0x1p20));
  CHECK(a.facts().ranks[0].state_mib > 0);
  CHECK(a.facts().ranks[0].sent_mib == 0);
  CHECK_FALSE(a.facts().ranks[0].peak_memory_mib);
}

TEST_CASE("a turn ends after the step in progress at its limit, and the next goes on from there") {
  const TemporaryFolder folder;
  LocalArm limited(endless(), folder / "a"), whole(endless(), folder / "b");
  std::atomic<int> stop{0};
  limited.limit_turns({.until = Clock::now() - std::chrono::seconds(1)});
  Turn one = limited.turn(4);
  CHECK(one.steps == 1);
  CHECK(one.losses.size() == 1);
  CHECK(limited.steps_taken() == 1);
  limited.limit_turns({.stopped = [&] { return stop != 0; }});
  one = joined(std::move(one), limited.turn(2));
  stop = 2;
  one = joined(std::move(one), limited.turn(5));
  CHECK(one.steps == 4);
  CHECK(one.losses == whole.turn(4).losses);
  CHECK(std::filesystem::exists(update_file(folder / "a")));
}

TEST_CASE("an arm writes its records to its folder, and none if the plan logs nothing") {
  const TemporaryFolder folder;
  Plan silent = endless();
  silent.logging.sinks.clear();
  LocalArm(endless(), folder / "a").turn(3);
  LocalArm(silent, folder / "b").turn(3);
  CHECK(std::filesystem::exists(folder / "a" / "metrics.jsonl"));
  CHECK_FALSE(std::filesystem::exists(folder / "b" / "metrics.jsonl"));
  CHECK_FALSE(std::filesystem::exists(folder / "b" / "telemetry.jsonl"));
}

TEST_CASE("the data ceiling repeats the first step's batches") {
  const TemporaryFolder folder;
  Plan plan = endless();
  plan.data.accumulation = 2;
  auto source = plan.open_batches(plan.data);
  std::vector<at::Tensor> first;
  for (int i = 0; i < 2; ++i) first.push_back(source->next().input.clone());
  ReplayedBatches replayed(plan.open_batches(plan.data));
  for (int step = 0; step < 3; ++step)
    for (size_t micro = 0; micro < 2; ++micro) {
      const Batch batch = replayed.next();
      CHECK(at::equal(batch.input, first[micro]));
      CHECK(batch.is_first == (micro == 0));
      CHECK(batch.is_last == (micro == 1));
    }
}

TEST_CASE("the optimizer ceiling leaves the weights unchanged") {
  const TemporaryFolder folder;
  Plan plan = endless();
  plan.optimizer.wrap("ceiling", "",
                      [](const BuildContext&, std::unique_ptr<Optimizer>) { return std::make_unique<NoUpdates>(); });
  LocalArm arm(plan, folder / "a");
  arm.turn(3);
  for (const auto& [name, update] : load_tensors(update_file(folder / "a")))
    CHECK(update.abs().max().item<float>() == 0);
}
