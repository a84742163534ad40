// A trainer's checkpoints: when they are saved, how write errors surface, and which one a run resumes from.
#include "support/catch.h"
#include "support/captured_log.h"
#include "support/resuming.h"
#include "unit/data/probe.h"

#include <fstream>

using namespace trainopt;
using namespace trainopt::test;

namespace {

std::vector<int64_t> steps_in(const std::filesystem::path& root) {
  std::vector<int64_t> steps;
  for (const auto& stored : list_checkpoints(root)) steps.push_back(stored.step);
  return steps;
}

void damage(const std::filesystem::path& file) {
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(-5, std::ios::end);
  bytes.put('!');
}

std::shared_ptr<const Dataset> with_bytes(const std::string& blocks, const std::string& versions) {
  auto dataset = std::make_shared<ProbeDataset>(96, 8);
  dataset->blocks = blocks, dataset->versions = versions;
  return dataset;
}

/// Three steps of training, with an evaluation, on data with these bytes.
Plan plan_on(std::shared_ptr<const Dataset> training, std::shared_ptr<const Dataset> evaluation) {
  Plan plan = small_plan(3);
  DataPlan held_out = plan.data;
  plan.data.dataset = std::move(training);
  held_out.dataset = std::move(evaluation);
  held_out.shuffle = held_out.drop_last = false;
  plan.evaluation = EvaluationPlan{.every_n_steps = 100, .at_end = true, .data = held_out};
  return plan;
}

}  // namespace

TEST_CASE("checkpoints are saved every n steps and at the end, and the newest are kept") {
  const TemporaryFolder folder;
  const bool background = GENERATE(true, false);
  CheckpointWriter writer(
      {.root = folder / "checkpoints", .every_n_steps = 3, .keep_last = 2, .background = background});
  train_part(small_plan(10), std::nullopt, &writer);
  CHECK(steps_in(folder / "checkpoints") == std::vector<int64_t>{10, 9});
  CHECK(writer.saved_step() == 10);
  CHECK(std::filesystem::read_symlink(folder / "checkpoints" / "latest") == "step-00000010");
}

TEST_CASE("a requested checkpoint is saved after the step") {
  const TemporaryFolder folder;
  std::atomic<bool> requested{false};
  class CheckpointRequester : public Rows {
   public:
    explicit CheckpointRequester(std::atomic<bool>& a) : requested(a) {}
    void step_done(const StepRecord& row) override {
      Rows::step_done(row);
      if (row.step() == 4) requested = true;
    }
    std::atomic<bool>& requested;
  } rows(requested);
  CheckpointWriter writer({.root = folder / "checkpoints", .requested = &requested});
  Plan plan = small_plan(8);
  plan.checkpoint.at_end = false;
  Trainer(plan, {}, rows, never_stopped(), {.checkpoints = &writer}).run();
  CHECK(steps_in(folder / "checkpoints") == std::vector<int64_t>{5});
  CHECK_FALSE(requested);
}

TEST_CASE("saving checkpoints does not change the results") {
  const TemporaryFolder folder;
  CheckpointWriter writer({.root = folder / "checkpoints", .every_n_steps = 1});
  const PartialRun with = train_part(small_plan(10), std::nullopt, &writer), without = train_part(small_plan(10));
  CHECK(with.losses == without.losses);
  CHECK(first_difference(with.state, without.state) == "");
}

TEST_CASE("an error in a background write ends the run at the next step, and the previous checkpoint stays") {
  const TemporaryFolder folder;
  CheckpointWriter writer({.root = folder / "checkpoints", .every_n_steps = 2, .before_commit = [n = 0]() mutable {
                             if (++n == 2) throw UserError("the disk is full", ExitCode::storage);
                           }});
  try {
    train_part(small_plan(20), std::nullopt, &writer);
    FAIL("the run did not end");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::storage);
  }
  writer.finish();
  const auto steps = steps_in(folder / "checkpoints");  // may include step 6, if training was faster than the disk
  CHECK(std::count(steps.begin(), steps.end(), 4) == 0);
  CHECK(steps.back() == 2);
  CHECK(read_checkpoint(folder / "checkpoints" / "step-00000002").integer("step") == 2);
}

TEST_CASE("the newest valid checkpoint is read, and the reason is given for each damaged newer one") {
  const TemporaryFolder folder;
  const auto root = folder / "checkpoints";
  CheckpointWriter writer({.root = root, .every_n_steps = 2, .keep_last = 9});
  train_part(small_plan(8), std::nullopt, &writer);
  damage(root / "step-00000008" / "rank-0000.safetensors");
  damage(root / "step-00000006" / "state.json");
  std::vector<std::string> rejected;
  const auto found = read_newest_checkpoint(root, [&](const std::string& why) { rejected.push_back(why); });
  REQUIRE(found.has_value());
  CHECK(found->integer("step") == 4);
  REQUIRE(rejected.size() == 2);
  CHECK_THAT(rejected[0], ContainsSubstring("step-00000008"));
  CHECK_THAT(rejected[1], ContainsSubstring("step-00000006"));
  // There is no fallback for a checkpoint given by its path.
  try {
    read_checkpoint(root / "step-00000008");
    FAIL("it was read");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::checkpoint);
  }
  for (const char* name : {"step-00000002", "step-00000004"}) damage(root / name / "manifest.json");
  CHECK_THROWS_WITH(read_newest_checkpoint(root, [](const std::string&) {}),
                    ContainsSubstring("none of the 4 checkpoints is valid"));
  CHECK_FALSE(read_newest_checkpoint(folder / "nowhere", [](const std::string&) {}).has_value());
}

TEST_CASE("another model, other data: resuming is refused with the differences") {
  const TemporaryFolder folder;
  CheckpointWriter writer({.root = folder / "checkpoints"});
  train_part(small_plan(3), std::nullopt, &writer);
  const ArchiveReader state = read_checkpoint(folder / "checkpoints" / "latest");
  Plan wider = small_plan(6);
  wider.model.config.hidden = {17};
  CHECK_THROWS_WITH(train_part(wider, std::nullopt, nullptr, &state),
                    ContainsSubstring("model.layers.0.weight is float32 [16, 192] there but float32 [17, 192] here"));
  Plan more = small_plan(6);
  more.data.dataset = make_fake_cifar10(97, more.seed);
  try {
    train_part(more, std::nullopt, nullptr, &state);
    FAIL("it fitted");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::data);
    CHECK_THAT(error.what(), ContainsSubstring("samples") && ContainsSubstring("96") && ContainsSubstring("97"));
  }
}

TEST_CASE("D20: overwritten data is refused, a copy of it is noted, and so is other evaluation data") {
  const TemporaryFolder folder;
  CheckpointWriter writer({.root = folder / "checkpoints"});
  train_part(plan_on(with_bytes("a", "1"), with_bytes("a", "1")), std::nullopt, &writer);
  const ArchiveReader state = read_checkpoint(folder / "checkpoints" / "latest");
  const auto warnings_of = [&](Plan plan) {
    const CapturedLog log;
    plan.steps = 4;
    train_part(plan, std::nullopt, nullptr, &state);
    return log.text();
  };
  CHECK(warnings_of(plan_on(with_bytes("a", "1"), with_bytes("a", "1"))).empty());
  CHECK_THAT(warnings_of(plan_on(with_bytes("a", "2"), with_bytes("a", "1"))), ContainsSubstring("written anew"));
  CHECK_THAT(warnings_of(plan_on(with_bytes("a", "1"), with_bytes("b", "1"))),
             ContainsSubstring("the evaluation data is not the checkpoint's") &&
                 ContainsSubstring("bytes in its files a → b"));
  CHECK_THROWS_WITH(warnings_of(plan_on(with_bytes("b", "1"), with_bytes("a", "1"))),
                    ContainsSubstring("the data is not what the checkpoint was trained on: bytes in its files a → b"));
}

TEST_CASE("data is not compared with what an older checkpoint does not have") {
  const DataIdentity old = identity_from(Json{{"kind", "probe"}, {"samples", 96}, {"classes", 10}, {"content", ""}});
  const DataIdentity now = with_bytes("a", "1")->identity();
  CHECK(!first_difference(old, now));
  CHECK(!has_other_versions(old, now));
  CHECK(!first_difference(identity_from(to_json(now)), now));
  CHECK(identity_from(to_json(now)).blocks == "a");
  CHECK(identity_from(to_json(now)).versions == "1");
}

TEST_CASE("an evaluation interrupted by a stop is repeated on resume") {
  Plan plan = small_plan(8);
  DataPlan held_out = plan.data;
  held_out.shuffle = held_out.drop_last = false;
  plan.evaluation = EvaluationPlan{.every_n_steps = 4, .at_end = true, .data = held_out};
  const TemporaryFolder folder;
  CheckpointWriter writer({.root = folder / "checkpoints"});
  StopAfter rows(4);
  Trainer(plan, {}, rows, rows.stop, {.checkpoints = &writer}).run();
  CHECK(rows.evaluations.empty());
  const ArchiveReader state = read_checkpoint(folder / "checkpoints" / "latest");
  Rows rest;
  Trainer(plan, {}, rest, never_stopped(), {.resume = &state}).run();
  CHECK(rest.evaluations.size() == 2);  // that of step 4, and that of step 8, which is the end
}
