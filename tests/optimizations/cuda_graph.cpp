// A run that records and replays its steps is bit-identical to an eager run, whatever the host decides between steps.
#include "debugging/inject.h"
#include "device/cuda_library.h"
#include "kernels/update/update.h"
#include "optimizations/cuda_graph/cuda_graph.h"
#include "optimizations/fused_optimizer/fused_optimizer.h"
#include "optimizations/tape_graph.h"
#include "recipe/make_plan.h"
#include "support/catch.h"
#include "support/programs.h"
#include "support/resuming.h"

#include <ATen/Parallel.h>

namespace cuda_graph_tests {

using namespace trainopt;
using namespace trainopt::test;
using namespace trainopt::cuda_graph;

namespace {

constexpr int64_t kSteps = 12, kEager = cuda_graph::GraphRunner::kEagerSteps;

const Machine kMachine{.cpu = "test", .cores = 2};

/// Two epochs of an mlp with dropout and a learning rate that changes in every step.
Recipe small_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model = {.name = ModelKind::mlp, .hidden = {12}, .dropout = 0.2};
  recipe.data.size = 48;
  recipe.data.batch_size = 8;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 8}, RandomHorizontalFlipConfig{},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  recipe.optimizer = SgdConfig{.lr = 0.05};
  recipe.scheduler = {.schedule = CosineSchedule{}, .warmup_steps = 4};
  recipe.optimizations.fused_optimizer = true;
  recipe.train.max_steps = kSteps;
  return recipe;
}

double replayed_steps(const StepTrace& trace) { return trace.count(kReplayedStepsLabel); }

Plan eager_plan(const Recipe& recipe) { return make_plan(recipe, kMachine); }

/// The CPU's update kernels, put on the tape as single launches, as a GPU recording holds them.
class UpdatesOnTape : public kernels::update::UpdateKernels {
 public:
  int64_t sgd(const kernels::update::SgdRule& rule, const kernels::update::Tensors& tensors,
              const kernels::update::Settings& settings) const override {
    on_tape([=] { kernels::update::cpu_kernels().sgd(rule, tensors, settings); });
    return 1;
  }
  int64_t adam(const kernels::update::AdamRule& rule, const at::Tensor& updates,
               const kernels::update::Tensors& tensors, const kernels::update::Settings& settings) const override {
    on_tape([=] { kernels::update::cpu_kernels().adam(rule, updates, tensors, settings); });
    return 1;
  }
  int64_t lion(const kernels::update::LionRule& rule, const kernels::update::Tensors& tensors,
               const kernels::update::Settings& settings) const override {
    on_tape([=] { kernels::update::cpu_kernels().lion(rule, tensors, settings); });
    return 1;
  }
  int64_t norms(const kernels::update::Tensors& tensors, const kernels::update::Settings& settings,
                const at::Tensor& squares) const override {
    on_tape([=] { kernels::update::cpu_kernels().norms(tensors, settings, squares); });
    return 1;
  }
  int64_t lamb_moments(const kernels::update::LambRule& rule, const at::Tensor& updates,
                       const kernels::update::Tensors& tensors, const kernels::update::Settings& settings,
                       const at::Tensor& squares) const override {
    on_tape([=] { kernels::update::cpu_kernels().lamb_moments(rule, updates, tensors, settings, squares); });
    return 1;
  }
  int64_t lamb(const kernels::update::LambRule& rule, const at::Tensor& updates,
               const kernels::update::Tensors& tensors, const kernels::update::Settings& settings) const override {
    on_tape([=] { kernels::update::cpu_kernels().lamb(rule, updates, tensors, settings); });
    return 1;
  }
  kernels::update::Measured measure(const std::vector<at::Tensor>& gradients, const at::Tensor& like) const override {
    const kernels::update::Measured result{at::zeros({}, at::kDouble), at::zeros({})};
    on_tape([=] {
      const auto measured = kernels::update::cpu_kernels().measure(gradients, like);
      result.square_sum.copy_(measured.square_sum);
      result.not_finite.copy_(measured.not_finite);
    });
    return result;
  }
};

/// Makes the graphs of a run.
using GraphsFor = std::function<MakeGraph(const BuildContext&)>;

/// The plan that the switch makes on a GPU, with a tape instead of a CUDA graph.
Plan recorded_plan(
    const Recipe& recipe, const GraphsFor& graphs = [](const BuildContext&) { return make_tape_graph; }) {
  Plan plan = eager_plan(recipe);
  if (recipe.optimizations.fused_optimizer)
    plan.optimizer.wrap("cuda_graph", "with launches on a tape",
                        [](const BuildContext& context, std::unique_ptr<Optimizer>) {
                          static const UpdatesOnTape kernels;
                          return fused_optimizer::make_fused_optimizer(kernels, context);
                        });
  plan.runner.fill("cuda_graph", "recorded on a tape", [graphs](const BuildContext& context) {
    return std::make_unique<cuda_graph::GraphRunner>(context, graphs(context));
  });
  return plan;
}

struct Result {
  std::vector<std::vector<std::optional<double>>>
      numbers;  ///< of each recorded step, including steps that were rolled back
  NamedTensors state;
  RunOutcome outcome;
};

Result train(Plan plan, const std::string& faults = "", const std::filesystem::path& folder = {}) {
  if (!faults.empty()) inject(plan, {parse_injection(faults)});
  Rows rows;
  Trainer trainer(std::move(plan), folder, rows, never_stopped());
  trainer.run();
  Result result{.numbers = {}, .state = {}, .outcome = trainer.outcome()};
  for (const StepRecord& row : rows.rows)
    result.numbers.push_back({row[Metric::step], row[Metric::loss], row[Metric::grad_norm], row[Metric::loss_scale],
                              row[Metric::nonfinite], row[Metric::learning_rate]});
  ArchiveWriter archive;
  trainer.save(archive);
  for (const auto& [name, tensor] : archive.tensors()) result.state.emplace_back(name, tensor.detach().clone());
  return result;
}

/// One line per step with all digits. Text instead of numbers, because one NaN must equal another.
std::string text(const Result& result) {
  std::string lines;
  for (const auto& row : result.numbers) {
    for (const auto& number : row) lines += number ? fmt::format("{:.17g} ", *number) : "- ";
    lines += "\n";
  }
  return lines;
}

struct Case {
  std::string name;
  std::function<void(Recipe&)> change;
  int64_t replayed = kSteps - kEager;
  std::string faults = "";
};
const std::vector<Case> kCases = {
    {"sgd", [](Recipe&) {}},
    {"sgd without momentum", [](Recipe& r) { r.optimizer = SgdConfig{.lr = 0.05, .momentum = 0}; }},
    {"adam", [](Recipe& r) { r.optimizer = AdamConfig{.lr = 0.01}; }},
    {"lion", [](Recipe& r) { r.optimizer = LionConfig{}; }},
    {"lars", [](Recipe& r) { r.optimizer = LarsConfig{.weight_decay = 0.1, .trust_clip = true}; }},
    {"lamb", [](Recipe& r) { r.optimizer = LambConfig{.weight_decay = 0.1}; }},
    {"groups and layer_decay",
     [](Recipe& r) {
       r.optimizer =
           SgdConfig{.lr = 0.05, .common = {.groups = {{.parameters = {"bias"}, .lr = 0.2}}, .layer_decay = 0.7}};
     }},
    {"adamw, gradients freed",
     [](Recipe& r) {
       AdamWConfig adamw;
       adamw.weight_decay = 0.1;
       r.optimizer = adamw, r.optimizations.set_to_none = true;
     }},
    {"gradients freed", [](Recipe& r) { r.optimizations.set_to_none = true; }},
    {"three micro-batches",
     [](Recipe& r) { r.data.batch_size = 2, r.data.size = 36, r.train.gradient_accumulation_steps = 3; }},
    {"three micro-batches, gradients freed",
     [](Recipe& r) {
       r.data.batch_size = 2, r.data.size = 36, r.train.gradient_accumulation_steps = 3,
       r.optimizations.set_to_none = true;
     }},
    // Steps of 8, 8, 6 samples: the short step is a separate kind, replayed from its fourth occurrence.
    {"short steps", [](Recipe& r) { r.data.drop_last = false, r.data.size = 22; }, (8 - kEager) + (4 - kEager)},
    // Steps of 4 + 4 and 4 + 2 samples.
    {"short micro-batches",
     [](Recipe& r) {
       r.data.drop_last = false, r.data.size = 14, r.data.batch_size = 4, r.train.gradient_accumulation_steps = 2,
       r.optimizations.set_to_none = true;
     },
     (6 - kEager) + (6 - kEager)},
    {"clipping", [](Recipe& r) { r.train.max_grad_norm = 0.1; }},
    {"clipping, short steps",
     [](Recipe& r) { r.train.max_grad_norm = 0.1, r.data.drop_last = false, r.data.size = 22; },
     (8 - kEager) + (4 - kEager)},
    {"a loss scale that overflows",
     [](Recipe& r) {
       r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 1 << 20, .growth_interval = 3}};
       r.optimizer = AdamConfig{.lr = 0.01};
     }},
    {"bfloat16", [](Recipe& r) { r.optimizations.amp.on = true; }},
    {"activations computed again",
     [](Recipe& r) {
       r.model = {.name = ModelKind::mlp, .hidden = {16, 12, 12}};
       r.optimizations.activation_checkpointing.on = true;
     }},
    {"activations computed again, products kept",
     [](Recipe& r) {
       r.model = {.name = ModelKind::mlp, .hidden = {16, 12, 12}};
       r.optimizations.activation_checkpointing = {true, {.policy = activation_checkpointing::Policy::selective}};
     }},
    {"a non-finite loss, skipped", [](Recipe& r) { r.train.on_nonfinite = OnNonfinite::skip; }, kSteps - kEager,
     "nan@7"},
    {"a non-finite gradient, skipped",
     [](Recipe& r) { r.train.on_nonfinite = OnNonfinite::skip, r.optimizations.set_to_none = true; }, kSteps - kEager,
     "gradient@7"},
    // The loss scale handles it.
    {"a gradient that overflows",
     [](Recipe& r) {
       r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 64}};
     },
     kSteps - kEager, "gradient@8"},
    // Micro-batches are split in halves before recording.
    {"memory runs out", [](Recipe& r) { r.optimizations.set_to_none = true; }, 11 - kEager, "oom@2"},
    {"memory runs out, gradients not freed", [](Recipe&) {}, 11 - kEager, "oom@2"},
};

}  // namespace

TEST_CASE("recorded steps are bit-identical to eager steps") {
  at::set_num_threads(1);
  for (const Case& one : kCases) {
    DYNAMIC_SECTION(one.name) {
      Recipe recipe = small_recipe();
      one.change(recipe);
      const Result eager = train(eager_plan(recipe), one.faults), recorded = train(recorded_plan(recipe), one.faults);
      CHECK(text(recorded) == text(eager));
      CHECK(first_difference(recorded.state, eager.state) == "");
      CHECK(recorded.outcome.skipped_steps == eager.outcome.skipped_steps);
      CHECK(replayed_steps(recorded.outcome.trace) == one.replayed);
      CHECK(replayed_steps(eager.outcome.trace) == 0);
    }
  }
}

TEST_CASE("a batch that has not changed is copied once; another one in each step") {
  const auto copies = [](DatasetKind kind) {
    Recipe recipe = small_recipe();
    recipe.data.dataset = kind;
    return train(recorded_plan(recipe)).outcome.trace.count(cuda_graph::kCopiesLabel);
  };
  CHECK(copies(DatasetKind::synthetic) == 2);
  CHECK(copies(DatasetKind::fake_cifar10) == 2 * (kSteps - kEager));
}

TEST_CASE("convolutions and batch-norm statistics are recorded too") {
  Recipe recipe = small_recipe();
  recipe.model = {.name = ModelKind::resnet18, .stem = StemKind::cifar};
  recipe.train.max_steps = 6;
  recipe.optimizations.set_to_none = recipe.optimizations.channels_last = GENERATE(false, true);
  recipe.train.on_nonfinite = recipe.optimizations.set_to_none ? OnNonfinite::rerun : OnNonfinite::abort;
  const Result eager = train(eager_plan(recipe)), recorded = train(recorded_plan(recipe));
  CHECK(text(recorded) == text(eager));
  CHECK(first_difference(recorded.state, eager.state) == "");
  CHECK(replayed_steps(recorded.outcome.trace) == 3);
}

TEST_CASE("steps of programs are recorded, with and without slots") {
  at::set_num_threads(1);
  for (const auto& use : {use_residual, use_mixed, use_text, use_written})
    for (const bool replaced : {false, true}) {
      Recipe recipe = small_recipe();
      use(recipe);
      recipe.train.max_steps = 6;
      recipe.optimizations.amp.on = replaced;  // kernels of our own would not be on the tape
      if (replaced) recipe.optimizations.attention = AttentionKernel::flash;
      INFO(*recipe.model.path << ", replaced: " << replaced);
      const Result eager = train(eager_plan(recipe)), recorded = train(recorded_plan(recipe));
      CHECK(text(recorded) == text(eager));
      CHECK(first_difference(recorded.state, eager.state) == "");
      CHECK(replayed_steps(recorded.outcome.trace) == 3);
    }
}

TEST_CASE("a recorded run that is resumed is bit-identical to an eager run") {
  Recipe recipe = small_recipe();
  recipe.optimizer = AdamConfig{.lr = 0.01};
  const PartialRun uninterrupted = train_part(eager_plan(recipe));
  for (const int64_t k : {2, 5, 8}) {
    INFO("stopped after step " << k);
    const PartialRun resumed = train_in_two(recorded_plan(recipe), recorded_plan(recipe), k);
    CHECK(resumed.losses == uninterrupted.losses);
    CHECK(first_difference(resumed.state, uninterrupted.state) == "");
    CHECK(replayed_steps(resumed.outcome.trace) == kSteps - k - kEager);
  }
}

TEST_CASE("a recording never consults the host again: with the learning rate on the host, training differs") {
  Recipe recipe = small_recipe();
  recipe.optimizations.fused_optimizer = false;
  CHECK(text(train(recorded_plan(recipe))) != text(train(eager_plan(recipe))));
}

TEST_CASE("a tape reads the tensors again, never the host") {
  at::Tensor input = at::ones({3}), sum = at::zeros({}), doubled;
  double factor = 2;
  const auto work = [&] {
    sum.add_(input.sum());
    doubled = input * factor;
  };
  const auto graph = make_tape_graph(at::Generator(), nullptr);
  graph->record(work);
  graph->replay();
  CHECK(sum.item<float>() == 3);
  input.fill_(5);
  factor = 100;
  graph->replay();
  CHECK(sum.item<float>() == 18);
  CHECK(doubled.equal(at::full({3}, 10.0f)));
  CHECK_THROWS_WITH(make_tape_graph(at::Generator(), nullptr)->record([&] { (void)sum.item<float>(); }),
                    ContainsSubstring("the host reads"));
}

TEST_CASE("if memory runs out in a recorded step, the whole step runs again and recording ends") {
  Recipe recipe = small_recipe();
  recipe.optimizations.set_to_none = GENERATE(false, true);
  const Result eager = train(eager_plan(recipe)), recorded = train(recorded_plan(recipe), "oom@6");
  CHECK(text(recorded) == text(eager));
  CHECK(first_difference(recorded.state, eager.state) == "");
  CHECK(replayed_steps(recorded.outcome.trace) == 5 - kEager);
  CHECK(recorded.outcome.micro_split == 1);
}

TEST_CASE("if memory runs out while recording, the step continues eagerly") {
  struct Full : Graph {
    Full(std::unique_ptr<Graph> tape, ParameterStore& store, bool is_full)
        : inner(std::move(tape)), parameters(store), full(is_full) {}
    void record(const std::function<void()>& work) override {
      if (!full) return inner->record(work);
      // An aborted recording leaves gradients without values.
      for (const auto& [name, parameter] : parameters.parameters())
        parameter.mutable_grad() = at::full_like(parameter, std::numeric_limits<double>::quiet_NaN());
      // It also leaves pending factors on the host.
      at::Tensor not_finite = at::zeros({});
      parameters.finish_gradients().unscale(at::full({}, 0.5f), not_finite);
      C10_THROW_ERROR(OutOfMemoryError, "tried to allocate a lot. ");
    }
    void replay() override { inner->replay(); }
    std::unique_ptr<Graph> inner;
    ParameterStore& parameters;
    bool full;
  };
  Recipe recipe = small_recipe();
  recipe.optimizations.set_to_none = GENERATE(false, true);
  recipe.data.drop_last = false;
  recipe.data.size = 22;  // steps of 8, 8, 6
  const auto [failing, replayed] = GENERATE(std::pair(1, 0), std::pair(2, 0),
                                            std::pair(3, 5));  // the third recording is of the short step, in step 12
  INFO("recording " << failing);
  int recordings = 0;
  Plan plan = recorded_plan(recipe, [&, failing = failing](const BuildContext& context) {
    return [&, failing, &store = *context.parameters](const at::Generator& generator, const Graph* pool_owner) {
      return std::make_unique<Full>(make_tape_graph(generator, pool_owner), store, ++recordings == failing);
    };
  });
  const Result eager = train(eager_plan(recipe)), recorded = train(std::move(plan));
  CHECK(text(recorded) == text(eager));
  CHECK(first_difference(recorded.state, eager.state) == "");
  CHECK(recordings == failing);
  CHECK(replayed_steps(recorded.outcome.trace) == replayed);
}

TEST_CASE("when memory runs out, all recordings are dropped") {
  struct Counted : Graph {
    Counted(std::unique_ptr<Graph> tape, int& count) : inner(std::move(tape)), alive(count) { ++alive; }
    ~Counted() override { --alive; }
    void record(const std::function<void()>& work) override { inner->record(work); }
    void replay() override { inner->replay(); }
    std::unique_ptr<Graph> inner;
    int& alive;
  };
  int alive = 0;
  Recipe recipe = small_recipe();
  recipe.train.max_steps = 7;
  Plan plan = recorded_plan(recipe, [&alive](const BuildContext&) {
    return [&alive](const at::Generator& generator, const Graph* pool_owner) {
      CHECK((pool_owner != nullptr) == (alive > 0));  // all recordings of a run share memory
      return std::make_unique<Counted>(make_tape_graph(generator, nullptr), alive);
    };
  });
  const bool runs_out = GENERATE(false, true);
  if (runs_out) inject(plan, {parse_injection("oom@6")});
  Rows rows;
  Trainer trainer(std::move(plan), {}, rows, never_stopped());
  trainer.run();
  CHECK(alive == (runs_out ? 0 : 2));
}

TEST_CASE("an evaluation that runs out of memory drops the recordings and runs again") {
  struct OutOfMemoryOnce : Rows {
    void at(const char* stage, int64_t) override {
      if (std::string_view(stage) == "evaluating" && full && !std::exchange(was_full, true))
        C10_THROW_ERROR(OutOfMemoryError, "tried to allocate a lot. ");
    }
    bool full = true, was_full = false;
  };
  const auto trained = [](Plan plan, OutOfMemoryOnce& rows) {
    DataPlan data = plan.data;
    data.shuffle = false;
    plan.evaluation = EvaluationPlan{.every_n_steps = 6, .at_end = false, .data = data};
    Trainer trainer(std::move(plan), {}, rows, never_stopped());
    trainer.run();
    return trainer.outcome();
  };
  OutOfMemoryOnce recorded, eager;
  eager.full = false;
  const RunOutcome again = trained(recorded_plan(small_recipe()), recorded),
                   once = trained(eager_plan(small_recipe()), eager);
  CHECK(recorded.was_full);
  CHECK(replayed_steps(again.trace) == kSteps - 2 * kEager);  // three more eager steps after step 6
  CHECK(again.evaluation->loss == once.evaluation->loss);
  OutOfMemoryOnce no_recordings;
  CHECK_THROWS(trained(eager_plan(small_recipe()), no_recordings));
}

TEST_CASE("a step that dumps tensors runs eagerly") {
  const TemporaryFolder folder;
  Recipe recipe = small_recipe();
  recipe.logging.dump = {.steps = {2, 8}, .what = {DumpKind::outputs, DumpKind::gradients}};
  const Result eager = train(eager_plan(recipe), "", folder / "eager"),
               recorded = train(recorded_plan(recipe), "", folder / "recorded");
  for (const char* step : {"dump/step-00000002.safetensors", "dump/step-00000008.safetensors"})
    CHECK(first_difference(load_tensors(folder / "recorded" / step), load_tensors(folder / "eager" / step)) == "");
  CHECK(replayed_steps(recorded.outcome.trace) == kSteps - kEager - 1);
}

TEST_CASE(
    "an eager step shows the other switches, and the receipt reports the cost of recording and when it pays off") {
  Recipe recipe = small_recipe();
  recipe.optimizations.amp.on = recipe.optimizations.set_to_none = true;
  const Plan plan = recorded_plan(recipe);
  const StepTrace seen = train(plan).outcome.trace;
  for (const auto& [name, requested, receipt] : receipts(plan.switches, seen)) {
    INFO(name << ": " << receipt.observed << " / " << receipt.reason);
    CHECK(receipt.effective);
  }
  CHECK(seen.count(kEagerStepsLabel) == kEager);
  CHECK(seen.count(kRecordingMsLabel) > 0);
  CHECK(seen.count(kEagerStepMsLabel) > 0);
  CHECK(seen.count(kReplayedStepMsLabel) > 0);

  if (!built_for_cuda()) return;  // this build cannot plan it for a GPU
  recipe.optimizations.cuda_graph = true;
  recipe.device = "cuda";
  const auto planned = make_plan(recipe, assume(Machine{}, "gpus=1,arch=sm_80,memory_gib=40").machine).switches.back();
  REQUIRE(planned.name == "cuda_graph");
  REQUIRE(planned.outcome.has_effect);
  using Counts = decltype(StepTrace::counts);
  const auto receipt = [&](Counts counts) {
    StepTrace of;
    of.counts = std::move(counts);
    return planned.outcome.receipt(of);
  };
  Counts pays{{kEagerStepsLabel, 3},
              {kReplayedStepsLabel, 97},
              {kRecordingMsLabel, 12},
              {kEagerStepMsLabel, 5},
              {kReplayedStepMsLabel, 1.5}};
  CHECK(receipt(pays).observed ==
        "97 of 100 steps replayed; recording took 12.0 ms, pays off after about 4 steps (one step: 5.00 ms eager, "
        "1.50 ms replayed)");
  pays[kReplayedStepMsLabel] = 6;
  CHECK_THAT(receipt(pays).observed, ContainsSubstring("does not pay off"));
  CHECK_FALSE(receipt({{kEagerStepsLabel, 3}}).effective);
  CHECK_THAT(receipt({{kEagerStepsLabel, 12}, {kEndedLabel, 1}}).reason, ContainsSubstring("memory ran out"));
  CHECK_THAT(receipt({{kEagerStepsLabel, 3}, {kReplayedStepsLabel, 9}, {kEndedLabel, 1}}).observed,
             ContainsSubstring("until memory ran out"));
}

TEST_CASE("if steps cannot be recorded, the plan says why") {
  Recipe recipe = small_recipe();
  recipe.optimizations.cuda_graph = true;
  const auto why = [&](const Machine& machine, const Without& without, int64_t ranks = 1) {
    const Plan plan = make_plan(recipe, machine, {.ranks = ranks}, without);
    CHECK_FALSE(plan.switches.back().outcome.has_effect);
    return plan.switches.back().outcome.text;
  };
  CHECK_THAT(why(kMachine, {}), ContainsSubstring("this plan runs on the CPU"));
  recipe.device = "cuda";
  const Machine machine = assume(Machine{}, "gpus=1,arch=sm_80,memory_gib=40").machine;
  CHECK_THAT(why(machine, {"fused_optimizer"}), ContainsSubstring("fused_optimizer"));
  CHECK_THAT(why(machine, {}, 2), ContainsSubstring("several ranks"));
  recipe.scheduler.schedule = OneCycleSchedule{};
  CHECK_THAT(why(machine, {}), ContainsSubstring("the schedule moves the momentum"));
  recipe.scheduler.schedule = ConstantSchedule{};
  use_gpt2(recipe);
  recipe.model.dropout = 0.1;
  recipe.optimizations.activation_checkpointing.on = true;
  CHECK_THAT(why(machine, {}), ContainsSubstring("sets dropout's random state back in every step"));
}

}  // namespace cuda_graph_tests
