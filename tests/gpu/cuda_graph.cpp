// Tests recorded steps on a GPU against eager ones, with deterministic kernels.
#include "device/graph.h"
#include "device/process.h"
#include "device/stream.h"
#include "device/tensor.h"
#include "optimizations/cuda_graph/cuda_graph.h"
#include "recipes.h"
#include "support/catch.h"
#include "support/resuming.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// Twenty steps with a learning rate that changes every step.
Recipe repeatable() {
  Recipe recipe = small_recipe("cuda");
  recipe.deterministic = true;
  recipe.train.max_steps = 20;
  recipe.scheduler = {.schedule = CosineSchedule{}, .warmup_steps = 5};
  recipe.optimizations.fused_optimizer = true;
  return recipe;
}

Recipe repeatable_mlp() {
  Recipe recipe = repeatable();
  recipe.model = {.name = ModelKind::mlp, .hidden = {64, 32}, .dropout = 0.25};
  return recipe;
}

PartialRun train_run(Recipe recipe, bool recorded) {
  recipe.optimizations.cuda_graph = recorded;
  const Plan plan = make_plan(recipe, detect_machine());
  apply(plan.process);  // sets the workspace of cuBLAS
  return train_part(plan);
}

void check_same_bits(const Recipe& recipe, int64_t replayed) {
  const PartialRun eager = train_run(recipe, false), recorded = train_run(recipe, true);
  CHECK(recorded.losses == eager.losses);
  CHECK(first_difference(recorded.state, eager.state) == "");
  CHECK(recorded.outcome.trace.count(cuda_graph::kReplayedStepsLabel) == replayed);
  CHECK(recorded.outcome.trace.count(cuda_graph::kRecordingMsLabel) > 0);
}

}  // namespace

TEST_CASE("twenty recorded steps of a ResNet are bit-identical to eager ones") {
  Recipe recipe = repeatable();
  const int variant = GENERATE(0, 1, 2, 3);
  INFO("variant " << variant);
  if (variant == 1) recipe.optimizations.set_to_none = recipe.optimizations.channels_last = true;
  if (variant == 2) {
    recipe.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 1 << 20, .growth_interval = 3}};
    recipe.train.max_grad_norm = 0.5;
    recipe.optimizer = AdamWConfig();
  }
  if (variant == 3) recipe.train.on_nonfinite = OnNonfinite::skip;
  check_same_bits(recipe, 17);
}

TEST_CASE("recorded micro-batches and short steps are bit-identical to eager ones") {
  Recipe recipe = repeatable();
  recipe.data.batch_size = 8;
  recipe.train.gradient_accumulation_steps = 3;
  recipe.data.drop_last = false;  // steps of 24, 24 and 8 + 8 samples
  recipe.optimizations.set_to_none = GENERATE(false, true);
  check_same_bits(recipe, 20 - 3 - 6 + 3);
}

TEST_CASE("recorded steps work with batches that are copied concurrently") {
  Recipe recipe = repeatable_mlp();
  recipe.data.num_workers = 2;
  recipe.data.pin_memory = recipe.data.non_blocking = true;
  recipe.optimizations.device_preprocess.on = true;
  check_same_bits(recipe, 17);
}

TEST_CASE("dropout draws new masks in each replay, as in eager steps") {
  Recipe recipe = repeatable_mlp();
  recipe.scheduler = {};
  recipe.optimizer = SgdConfig{.lr = 0};
  recipe.data.size = recipe.data.batch_size;  // the same batch in every step, so that only dropout differs
  recipe.data.shuffle = false;
  const PartialRun recorded = train_run(recipe, true);
  CHECK(std::set<double>(recorded.losses.begin(), recorded.losses.end()).size() > 15);
  CHECK(recorded.losses == train_run(recipe, false).losses);
}

TEST_CASE("replaying a graph repeats its work on the current contents of its inputs") {
  const at::Device gpu(at::kCUDA, 0);
  at::Generator generator = at::globalContext().getAcceleratorHooksInterface(gpu.type()).getNewGenerator(gpu.index());
  generator.set_current_seed(7);
  const Stream side = Stream::side(gpu, /*high_priority=*/true);
  const StreamGuard guard(side);
  at::Tensor input = at::ones({1000}, gpu), sum = at::zeros({}, gpu), drawn = at::empty({1000}, gpu), result;
  const auto work = [&] {
    sum.add_(input.sum());
    drawn.bernoulli_(0.5, generator);
    result = drawn * 2;
  };
  work();
  const at::Tensor first = drawn.clone();
  const auto graph = make_graph(generator, nullptr);
  graph->record(work);
  CHECK(sum.item<float>() == 1000);
  graph->replay();
  const at::Tensor second = drawn.clone();
  input.fill_(2);
  graph->replay();
  CHECK(sum.item<float>() == 4000);
  CHECK_FALSE(second.equal(first));
  CHECK_FALSE(drawn.equal(second));
  CHECK(result.equal(drawn * 2));
  generator.set_current_seed(7);
  for (const at::Tensor& replayed : {first, second, drawn.clone()})
    CHECK(at::empty_like(drawn).bernoulli_(0.5, generator).equal(replayed));

  const auto failing = make_graph(generator, graph.get());
  const auto fails = [&] {
    work();
    throw std::runtime_error("on purpose");
  };
  CHECK_THROWS_WITH(failing->record(fails), "on purpose");
  CHECK(sum.item<float>() == 4000);  // the stream is no longer recording
  work();
  CHECK(sum.item<float>() == 6000);
}

TEST_CASE("the switch is effective and reports replayed steps") {
  Recipe recipe = repeatable_mlp();
  recipe.deterministic = false;
  recipe.optimizations.cuda_graph = true;
  const Finished finished = train(recipe);
  const auto& receipt = finished.receipts.back();
  REQUIRE(receipt.name == "cuda_graph");
  INFO(receipt.receipt.observed);
  CHECK(receipt.receipt.effective);
  CHECK_THAT(receipt.receipt.observed, ContainsSubstring("17 of 20 steps replayed"));
  CHECK(finished.seen.count(cuda_graph::kReplayedStepMsLabel) > 0);
}
