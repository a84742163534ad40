// Every switch that works on this machine against the plain plan, from the same seed and in a real run.
#include "recipe/make_plan.h"
#include "recipe/plan_text.h"
#include "recipe/recipe_io.h"
#include "support/catch.h"
#include "support/plans.h"

#include <ATen/ATen.h>

#include <set>

using namespace trainopt;
using namespace trainopt::test;

namespace {

enum class Exactness { same_bits, same_math, new_math };

struct Entry {
  std::string name;
  std::function<void(Recipe&)> turn_on;
  Exactness exactness;
  double tolerance = 0;                                ///< of each loss, relative
  bool effective = true;                               ///< on a CPU
  std::function<void(Recipe&)> both = [](Recipe&) {};  ///< done to the plain recipe too
};

/// So that nothing but the resize moves.
void flip_first(Recipe& recipe) { std::swap(recipe.data.transforms.at(0), recipe.data.transforms.at(1)); }

/// The usual augmentation of CIFAR-10.
void crop_too(Recipe& recipe) {
  recipe.data.transforms.insert(recipe.data.transforms.begin() + 1, RandomCropConfig{16, 16, 2});
}

void use_mlp(Recipe& recipe) { recipe.model = {.name = ModelKind::mlp, .hidden = {32}}; }

void smooth_labels(Recipe& recipe) { recipe.train.label_smoothing = 0.1; }

/// The usual augmentation of ImageNet.
void resized_crop(Recipe& recipe) { recipe.data.transforms.at(0) = RandomResizedCropConfig{16, 16}; }

/// The device then writes the type that the step computes in. With mean and deviation 0.5 all levels would be nearly
/// numbers of bfloat16, rounded well or badly.
void in_16_bits(Recipe& recipe, const amp::Config& amp) {
  recipe.optimizations.amp = {true, amp};
  recipe.data.transforms.back() = NormalizeConfig{.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}};
}
void in_bfloat16(Recipe& recipe) { in_16_bits(recipe, {}); }
void in_float16(Recipe& recipe) { in_16_bits(recipe, {.dtype = amp::Type::float16, .init_scale = 64}); }
void in_bfloat16_nhwc(Recipe& recipe) {
  in_bfloat16(recipe);
  recipe.optimizations.channels_last = true;
}

void with_weight_copies(Recipe& recipe) {
  in_bfloat16(recipe);
  recipe.optimizations.fused_optimizer = true;
}

const std::vector<Entry> kMatrix = {
    {"num_workers", [](Recipe& r) { r.data.num_workers = 2; }, Exactness::same_bits},
    {"prefetch_factor", [](Recipe& r) { r.data.num_workers = 2, r.data.prefetch_factor = 3; }, Exactness::same_bits},
    {"persistent_workers", [](Recipe& r) { r.data.num_workers = 2, r.data.persistent_workers = true; },
     Exactness::same_bits},
    {"pin_memory", [](Recipe& r) { r.data.pin_memory = true; }, Exactness::same_bits, 0, false},
    {"non_blocking", [](Recipe& r) { r.data.pin_memory = r.data.non_blocking = true; }, Exactness::same_bits, 0, false},
    {"cache", [](Recipe& r) { r.data.cache = CacheKind::device; }, Exactness::same_bits},
    {"cache", [](Recipe& r) { r.data.cache = CacheKind::device, r.data.num_workers = 2; }, Exactness::same_bits, 0,
     true, crop_too},
    {"channels_last", [](Recipe& r) { r.optimizations.channels_last = true; }, Exactness::same_math, 1e-3},
    {"fused_kernels", [](Recipe& r) { r.optimizations.fused_kernels = true; }, Exactness::same_math, 1e-3},
    {"fused_kernels", [](Recipe& r) { r.optimizations.fused_kernels = true; }, Exactness::same_math, 1e-3, true,
     smooth_labels},
    {"fused_kernels", [](Recipe& r) { r.optimizations.fused_kernels = true; }, Exactness::same_math, 5e-2, true,
     in_float16},
    {"fused_kernels", [](Recipe& r) { r.optimizations.fused_kernels = true; }, Exactness::same_math, 1e-5, true,
     use_mlp},
    {"winograd", [](Recipe& r) { r.optimizations.winograd = true; }, Exactness::same_math, 1e-3},
    {"winograd", [](Recipe& r) { r.optimizations.winograd = true; }, Exactness::same_math, 5e-2, true, in_bfloat16},
    {"winograd", [](Recipe& r) { r.optimizations.winograd = true; }, Exactness::same_math, 5e-2, true, in_float16},
    {"winograd", [](Recipe& r) { r.optimizations.winograd = true; }, Exactness::same_math, 5e-2, true,
     with_weight_copies},
    {"tf32", [](Recipe& r) { r.optimizations.tf32 = true; }, Exactness::same_bits, 0, false},
    {"cudnn_benchmark", [](Recipe& r) { r.optimizations.cudnn_benchmark = true; }, Exactness::same_bits, 0, false},
    {"cuda_graph", [](Recipe& r) { r.optimizations.cuda_graph = true; }, Exactness::same_bits, 0, false},
    {"amp", [](Recipe& r) { r.optimizations.amp.on = true; }, Exactness::same_math, 5e-2},
    {"amp",
     [](Recipe& r) {
       r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 64}};
     },
     Exactness::same_math, 5e-2},
    {"set_to_none", [](Recipe& r) { r.optimizations.set_to_none = true; }, Exactness::same_bits},
    {"cache", [](Recipe& r) { r.data.cache = CacheKind::device; }, Exactness::same_bits, 0, true, in_bfloat16},
    {"device_preprocess", [](Recipe& r) { r.optimizations.device_preprocess.on = true; }, Exactness::same_bits},
    {"device_preprocess", [](Recipe& r) { r.optimizations.device_preprocess.on = true; }, Exactness::same_bits, 0, true,
     in_bfloat16},
    {"device_preprocess", [](Recipe& r) { r.optimizations.device_preprocess.on = true; }, Exactness::same_bits, 0, true,
     in_float16},
    {"device_preprocess", [](Recipe& r) { r.optimizations.device_preprocess.on = true; }, Exactness::same_bits, 0, true,
     in_bfloat16_nhwc},
    {"device_preprocess",
     [](Recipe& r) {
       r.optimizations.device_preprocess = {true, {.resize = true}};
     },
     Exactness::same_bits, 0, true, flip_first},
    {"device_preprocess",
     [](Recipe& r) {
       r.optimizations.device_preprocess = {true, {.resize = true}};
     },
     Exactness::same_bits, 0, true, crop_too},
    {"device_preprocess",
     [](Recipe& r) {
       r.optimizations.device_preprocess = {true, {.resize = true}};
     },
     Exactness::same_bits, 0, true, resized_crop},
    {"cache", [](Recipe& r) { r.data.cache = CacheKind::device; }, Exactness::same_bits, 0, true, resized_crop},
    {"fused_optimizer", [](Recipe& r) { r.optimizations.fused_optimizer = true; }, Exactness::same_math, 1e-4},
};

Recipe small_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model.stem = StemKind::cifar;
  recipe.data.size = 48;
  recipe.data.batch_size = 8;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 16}, RandomHorizontalFlipConfig{},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  recipe.train.max_steps = 8;                // more than an epoch, which has six
  recipe.optimizer = SgdConfig{.lr = 1e-4};  // larger steps of a fresh ResNet multiply rounding tenfold each: sums in
                                             // another order would be another training
  return recipe;
}

struct Result {
  std::vector<double> losses;
  std::vector<SwitchReceipt> receipts;
  NamedTensors weights;
};

Result train(const Recipe& recipe) {
  Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  Result result{rows.losses(), receipts(plan.switches, trainer.outcome().trace), {}};
  for (const auto& [name, tensor] : trainer.model().parameters())
    result.weights.emplace_back(name, tensor.detach().clone());
  return result;
}

bool same_bits(const NamedTensors& a, const NamedTensors& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].second.equal(b[i].second)) return false;
  return a.size() == b.size();
}

}  // namespace

TEST_CASE("every switch is off by default") {
  Recipe recipe;
  recipe.device = "cpu";
  CHECK(make_plan(recipe, Machine{.cpu = "test"}).switches.empty());
}

TEST_CASE("the matrix has every switch that a plan can have") {
  Recipe recipe = small_recipe();
  recipe.data.batch_size = 6;
  recipe.optimizations.host_allocator.on = true;
  for (const Entry& entry : kMatrix) entry.turn_on(recipe);
  std::set<std::string> in_matrix{"batch_size",
                                  "host_allocator"};  // other numbers by intention; a setting of the process: tests/cli
  for (const Entry& entry : kMatrix) in_matrix.insert(entry.name);
  std::set<std::string> in_plan;
  for (const auto& entry : make_plan(recipe, Machine{.cpu = "test", .cores = 2}).switches) in_plan.insert(entry.name);
  CHECK(in_plan == in_matrix);
}

TEST_CASE("every switch trains, is seen, and agrees with the plain plan") {
  static const Result usual = train(small_recipe());
  for (const Entry& entry : kMatrix) {
    DYNAMIC_SECTION(entry.name << ", entry "
                               << &entry - kMatrix.data()) {  // of sections with the same name only the first would run
      Recipe recipe = small_recipe();
      entry.both(recipe);
      const bool as_usual = recipe_yaml(recipe) == recipe_yaml(small_recipe());
      const Result plain = as_usual ? usual : train(recipe);
      entry.turn_on(recipe);
      const std::string text = plan_text(make_plan(recipe, Machine{.cpu = "test", .cores = 2}));
      CHECK_THAT(text, ContainsSubstring(entry.name));

      const Result switched = train(recipe);
      const auto receipt = std::find_if(switched.receipts.begin(), switched.receipts.end(),
                                        [&](const auto& r) { return r.name == entry.name; });
      REQUIRE(receipt != switched.receipts.end());
      INFO(receipt->receipt.observed << " / " << receipt->receipt.reason);
      CHECK(receipt->receipt.effective == entry.effective);
      CHECK(receipt->receipt.reason.empty() == entry.effective);

      if (entry.exactness == Exactness::same_bits) {
        CHECK(switched.losses == plain.losses);
        CHECK(same_bits(switched.weights, plain.weights));
      } else {
        for (size_t i = 0; i < plain.losses.size(); ++i)
          CHECK(switched.losses[i] == Approx(plain.losses[i]).epsilon(entry.tolerance));
      }
    }
  }
}

TEST_CASE("a switch made ineffective on purpose is caught by its receipt") {
  // Fill the precision slot with float32 under amp's name: the plan believes in 16 bits, the dispatcher does not.
  Recipe recipe = small_recipe();
  recipe.optimizations.amp.on = true;
  Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  plan.precision =
      Slot<Precision>("precision", "float32", [](const BuildContext&) { return std::make_unique<FullPrecision>(); });
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  const auto all = receipts(plan.switches, trainer.outcome().trace);
  REQUIRE(all.size() == 2);  // and the batch size
  CHECK(all[1].name == "amp");
  CHECK_FALSE(all[1].receipt.effective);
  CHECK_THAT(all[1].receipt.observed, ContainsSubstring("0 of"));
}

TEST_CASE("fused kernels' receipt counts what trains, not what is evaluated beside it") {
  Recipe recipe = small_recipe();
  recipe.optimizations.fused_kernels = true;
  recipe.train.max_steps = 2;
  Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  plan.evaluation = EvaluationPlan{.every_n_steps = 1, .at_end = false, .data = plan.data};
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  REQUIRE(rows.evaluations.size() == 2);
  const auto all = receipts(plan.switches, trainer.outcome().trace);
  const auto own = std::find_if(all.begin(), all.end(), [](const auto& r) { return r.name == "fused_kernels"; });
  REQUIRE(own != all.end());
  CHECK(own->receipt.observed ==
        "20 of 20 batch-norms fused, 20 of their gradients; 1 of 1 average pools fused, 1 of their gradients; 1 of 1 "
        "losses fused, 1 of their gradients");
  CHECK(own->receipt.effective);
  CHECK(own->receipt.reason.empty());
}

TEST_CASE("a part of fused kernels that does not run is named by their receipt") {
  Recipe recipe = small_recipe();
  recipe.optimizations.fused_kernels = true;
  Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  plan.task = Slot<Task>("task", "plain", [](const BuildContext&) { return std::make_unique<ClassificationTask>(0); });
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  for (const auto& [name, requested, receipt] : receipts(plan.switches, trainer.outcome().trace))
    if (name == "fused_kernels") {
      CHECK_THAT(receipt.observed, ContainsSubstring("0 of 1 losses fused"));
      CHECK(receipt.reason == "some losses were not fused");
    }
}

TEST_CASE("a run of one epoch or one step claims nothing it could not see") {
  Recipe recipe = small_recipe();
  recipe.train.max_steps = 1;
  recipe.data.num_workers = 1;
  recipe.data.persistent_workers = recipe.optimizations.set_to_none = true;
  for (const auto& entry : train(recipe).receipts)
    if (entry.name != "num_workers" && entry.name != "batch_size") CHECK_FALSE(entry.receipt.effective);
}

TEST_CASE("strict refuses a switch without effect, and without() leaves one out") {
  Recipe recipe = small_recipe();
  recipe.data.batch_size = DataConfig().batch_size;
  recipe.data.size = 320;
  recipe.optimizations.tf32 = true;
  recipe.strict = true;
  CHECK_THROWS_WITH(make_plan(recipe, Machine{}), ContainsSubstring("tf32 has no effect here"));
  const Plan plan = make_plan(recipe, Machine{}, {"tf32"});
  CHECK(plan.switches.empty());
  CHECK(plan.notes.size() == 1);
}

TEST_CASE("a plan for an assumed GPU turns on what the GPU has") {
  Recipe recipe = small_recipe();
  recipe.device = "auto";
  recipe.optimizations.tf32 = recipe.optimizations.cudnn_benchmark = true;
  recipe.data.pin_memory = recipe.data.non_blocking = true;
  const Plan ampere = make_plan(recipe, assume(Machine{}, "gpus=2,arch=sm_80,memory_gib=40"));
  CHECK(ampere.device.is_cuda());
  for (const auto& entry : ampere.switches) CHECK(entry.outcome.has_effect);
  const Plan turing = make_plan(recipe, assume(Machine{}, "gpus=1,arch=sm_75"));
  CHECK_FALSE(std::find_if(turing.switches.begin(), turing.switches.end(), [](const auto& e) {
                return e.name == "tf32";
              })->outcome.has_effect);
  CHECK_THROWS_WITH(assume(Machine{}, "gpu=1"), ContainsSubstring("--assume knows"));
}
