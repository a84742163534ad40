// Running out of memory in a step: smaller micro-batches, same global batch, same samples.
#include "debugging/dump.h"
#include "debugging/inject.h"
#include "support/catch.h"
#include "support/resuming.h"
#include "support/temporary_folder.h"
#include "train/micro_batches.h"

#include <array>
#include <numeric>

using namespace trainopt;
using namespace trainopt::test;

namespace {

Plan plan_with_faults(const std::vector<std::string>& faults, bool convolutions = false) {
  Plan plan = small_plan(8);
  plan.model.config.dropout = 0;
  if (convolutions) plan.model.config = {.name = ModelKind::resnet18, .stem = StemKind::cifar};
  std::vector<Injection> injections;
  for (const auto& fault : faults) injections.push_back(parse_injection(fault));
  inject(plan, injections);
  return plan;
}

}  // namespace

TEST_CASE("after running out of memory, steps use the same samples in smaller micro-batches") {
  const PartialRun uninterrupted = train_part(plan_with_faults({}));
  for (const std::vector<std::string>& faults : {std::vector<std::string>{"oom@3"}, {"oom@1", "oom@4", "oom@4"}}) {
    const PartialRun pieces = train_part(plan_with_faults(faults));
    CHECK(pieces.outcome.micro_split == (1 << faults.size()));
    CHECK(pieces.outcome.samples == uninterrupted.outcome.samples);
    REQUIRE(pieces.losses.size() == uninterrupted.losses.size());
    for (size_t i = 0; i < uninterrupted.losses.size(); ++i)
      CHECK(pieces.losses[i] == Approx(uninterrupted.losses[i]).epsilon(1e-5));
  }
}

TEST_CASE("the failed attempt's changes to batch-norm buffers are undone") {
  Plan plan = plan_with_faults({"oom@3"}, true);
  plan.data.accumulation = 2;
  plan.steps = 4;
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  for (const auto& [name, buffer] : trainer.parts().model().buffers())
    if (name.ends_with("num_batches_tracked"))
      CHECK(buffer.item<int64_t>() == 2 * 2 + 2 * 4);  // two steps of two, two of four
}

TEST_CASE("a dump of a step that ran out of memory has the outputs of the successful attempt") {
  Plan plan = small_plan(4);
  plan.logging.dump = {.steps = {3}, .what = {DumpKind::outputs}};
  add_dump(plan);
  inject(plan, {parse_injection("oom@3")});
  const TemporaryFolder folder;
  Rows rows;
  Trainer(plan, folder.path(), rows, never_stopped()).run();
  const NamedTensors dumped = load_tensors(folder / "dump/step-00000003.safetensors");
  REQUIRE(dumped.size() == 1);
  CHECK(dumped.front().first == "outputs");
  CHECK(dumped.front().second.size(0) == plan.data.batch_size);
}

TEST_CASE("running out of memory with one sample at a time ends the run") {
  Plan plan = plan_with_faults({"oom@2+"});
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  try {
    trainer.run();
    FAIL("the run did not end");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::memory);
    CHECK_THAT(error.what(), ContainsSubstring("1 sample at a time") && ContainsSubstring("optimizer"));
  }
  CHECK(trainer.outcome().steps == 1);
}

TEST_CASE("a resumed run keeps its smaller micro-batches") {
  const PartialRun uninterrupted = train_part(plan_with_faults({"oom@3"}));
  const PartialRun resumed = train_in_two(plan_with_faults({"oom@3"}), plan_with_faults({}), 5);
  CHECK(resumed.losses == uninterrupted.losses);
  CHECK(first_difference(resumed.state, uninterrupted.state) == "");
}

TEST_CASE("the pieces of a batch of text weigh as much as their tokens") {
  Batch batch;
  batch.input = batch.target = at::arange(20).view({5, 4});
  batch.sample_ids = {0, 1, 2, 3, 4};
  batch.items = 5;
  batch.step_items = 10;
  batch.target_tokens = {1, 4, 2, 3, 1};
  batch.tokens = 11;
  batch.step_tokens = 44;
  batch.weight = 0.25;
  for (const int64_t pieces : {1, 2, 3, 5}) {
    double weight = 0;
    std::vector<int64_t> tokens;
    for (const Batch& part : split_batch(batch, pieces)) {
      tokens.insert(tokens.end(), part.target_tokens.begin(), part.target_tokens.end());
      CHECK(part.target_tokens.size() == static_cast<size_t>(part.items));
      CHECK(part.tokens == std::accumulate(part.target_tokens.begin(), part.target_tokens.end(), int64_t{0}));
      CHECK(part.weight == Approx(static_cast<double>(part.tokens) / 44));
      CHECK(part.step_tokens == 44);
      weight += part.weight;
    }
    CHECK(tokens == batch.target_tokens);
    CHECK(weight == Approx(0.25));
  }
}

TEST_CASE("the pieces of a batch together are the batch") {
  Batch batch;
  batch.input = at::arange(7);
  batch.sample_ids = {0, 1, 2, 3, 4, 5, 6};
  batch.items = 7;
  batch.step_items = 14;
  batch.weight = 0.5;
  batch.is_first = false;
  for (const int64_t pieces : {1, 2, 3, 4, 8, 64}) {
    const auto parts = split_batch(batch, pieces);
    std::vector<at::Tensor> tensors;
    std::vector<int64_t> ids;
    double weight = 0;
    for (const auto& part : parts) {
      CHECK(part.items == part.input.size(0));
      tensors.push_back(part.input);
      ids.insert(ids.end(), part.sample_ids.begin(), part.sample_ids.end());
      weight += part.weight;
      CHECK_FALSE(part.is_first);
      CHECK(part.is_last == (&part == &parts.back()));
    }
    CHECK(at::cat(tensors).equal(at::arange(7)));
    CHECK(ids == batch.sample_ids);
    CHECK(weight == Approx(0.5));
    CHECK(parts.size() <= 7);
  }
}

TEST_CASE("ranks that exchange in every piece of a batch make equally many pieces of a short one") {
  Plan plan = small_plan(1);
  plan.data.dataset = make_fake_cifar10(14, 1);
  plan.data.batch_size = 4;
  plan.data.drop_last = false;
  plan.data.ranks = 2;
  const auto pieces_on = [&](int64_t rank, int64_t step) {
    plan.data.rank = rank;
    const MicroBatch where = plan.data.schedule().at(step, 0);
    return pieces_of(make_batch(where, {}, {}, {}), plan, /*pieces=*/2, /*min_items=*/2);
  };
  using Pieces = std::array<int64_t, 2>;  // of both ranks
  const auto pieces = [&](int64_t step) { return Pieces{pieces_on(0, step), pieces_on(1, step)}; };
  // The last 6 samples: 4 on rank 0, and 2 on rank 1, which cannot be halved.
  CHECK((pieces(1) == Pieces{2, 1}));
  for (const auto strategy : {ShardingStrategy::none, ShardingStrategy::zero2, ShardingStrategy::zero3}) {
    plan.parallel.sharding_strategy = strategy;
    plan.parallel.sync_batch_norm = strategy == ShardingStrategy::none;
    CHECK((pieces(0) == Pieces{2, 2}));
    CHECK((pieces(1) == Pieces{1, 1}));
  }
}
