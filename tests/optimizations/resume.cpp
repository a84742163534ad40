// A run that is stopped after any step and resumed from its checkpoint ends bit-identical to an uninterrupted run, for
// every kind of data set and every component with state.
#include "data/dataset.h"
#include "data/pack.h"
#include "support/catch.h"
#include "support/resuming.h"
#include "support/programs.h"
#include "support/turned_on.h"

#include <ATen/Parallel.h>

#include <fstream>
#include <numeric>

namespace resume_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

constexpr int64_t kSteps = 12;  // two epochs of six steps

/// Small files for the data sets that read files, created once.
const TemporaryFolder& files() {
  static const TemporaryFolder folder;
  static const bool made = [&] {
    std::filesystem::create_directories(folder / "cifar");
    std::ofstream batch(folder / "cifar/data_batch_1.bin", std::ios::binary);
    for (int record = 0; record < 24; ++record) {
      batch.put(static_cast<char>(record % 10));
      for (int byte = 0; byte < 3072; ++byte) batch.put(static_cast<char>(record * 37 + byte * (1 + record % 5)));
    }
    // Twenty-four images in three classes.
    const std::vector<std::string> images{"420.jpg",         "422.jpg",  "grey.jpg",  "icc.jpg",
                                          "progressive.jpg", "rgba.png", "rgb16.png", "smooth.jpg"};
    for (const char* name : {"a", "b", "c"}) {
      std::filesystem::create_directories(folder / "images" / name);
      for (const auto& image : images)
        std::filesystem::copy_file(std::filesystem::path(IMAGE_FILES) / image, folder / "images" / name / image);
    }
    const auto all = open_images((folder / "images").string());
    pack(*all, folder / "images.pack", {.resize = 12}, [](const PackProgress&) {});
    pack(*all, folder / "images.tar", {.format = PackFormat::tar}, [](const PackProgress&) {});
    return true;
  }();
  (void)made;
  return folder;
}

Recipe small_recipe(DatasetKind dataset) {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.num_threads = 1;
  recipe.model.name = ModelKind::mlp;
  recipe.model.hidden = {12};
  recipe.model.dropout = 0.2;
  recipe.data.dataset = dataset;
  recipe.data.batch_size = 4;
  recipe.optimizer = SgdConfig{.lr = 0.05, .momentum = 0.9};
  recipe.train.max_steps = kSteps;
  recipe.data.size = 24;
  if (dataset == DatasetKind::synthetic) {
    recipe.data.image_size = 8;
    return recipe;
  }
  recipe.data.transforms = {ResizeConfig{.exact = {10, 10}}, RandomCropConfig{.height = 8, .width = 8},
                            RandomHorizontalFlipConfig{},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  if (dataset == DatasetKind::cifar10) recipe.data.path = (files() / "cifar").string();
  if (dataset == DatasetKind::image_folder) recipe.data.path = (files() / "images").string();
  if (dataset == DatasetKind::packed) recipe.data.path = (files() / "images.pack").string();
  if (dataset == DatasetKind::tar) recipe.data.path = (files() / "images.tar").string();
  return recipe;
}

struct Feature {
  std::string name;
  std::function<void(Recipe&)> turn_on;
  bool needs_files = false;
  bool once = false;  ///< has nothing to do with the data: one data set is enough
};
const std::vector<Feature> kFeatures = {
    {"dropout and augmentation", [](Recipe&) {}},
    {"amp", [](Recipe& r) { r.optimizations.amp.on = true; }},
    {"amp with a loss scale",
     [](Recipe& r) {
       r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 1 << 20, .growth_interval = 3}};
     }},
    {"bfloat16 weights",
     [](Recipe& r) {
       r.optimizer = AdamWConfig();
       r.optimizations.amp.on = r.optimizations.precision.on = true;
       r.data.batch_size = 2, r.train.gradient_accumulation_steps = 2;
       r.train.max_grad_norm = 0.1;
       r.train.on_nonfinite = OnNonfinite::skip;
     }},
    {"a vision transformer with dropout",
     [](Recipe& r) {
       r.model = {.name = ModelKind::vit, .patch = 4, .layers = 2, .heads = 2, .width = 8, .dropout = 0.2};
     }},
    {"accumulation", [](Recipe& r) { r.data.batch_size = 2, r.train.gradient_accumulation_steps = 2; }},
    {"clipping", [](Recipe& r) { r.train.max_grad_norm = 0.1; }},
    {"schedule", [](Recipe& r) { r.scheduler = {.schedule = CosineSchedule{}, .warmup_steps = 4}; }},
    {"one cycle, which moves the momentum", [](Recipe& r) { r.scheduler.schedule = OneCycleSchedule{}; }, false, true},
    {"ema", [](Recipe& r) { r.average = EmaConfig{.decay = 0.9}; }, false, true},
    {"swa", [](Recipe& r) { r.average = SwaConfig{.start_step = 3, .every_n_steps = 2}; }, false, true},
    {"fused optimizer", [](Recipe& r) { r.optimizations.fused_optimizer = true; }},
    {"adamw", [](Recipe& r) { r.optimizer = AdamWConfig(); }},
    {"nadam", [](Recipe& r) { r.optimizer = NAdamConfig(); }, false, true},
    {"rmsprop", [](Recipe& r) { r.optimizer = RmspropConfig{.momentum = 0.5, .centered = true}; }, false, true},
    {"adagrad", [](Recipe& r) { r.optimizer = AdagradConfig{.lr_decay = 0.1, .initial_accumulator_value = 0.1}; },
     false, true},
    {"lion", [](Recipe& r) { r.optimizer = LionConfig(); }, false, true},
    {"lars", [](Recipe& r) { r.optimizer = LarsConfig{.weight_decay = 0.01}; }, false, true},
    {"lamb", [](Recipe& r) { r.optimizer = LambConfig{.weight_decay = 0.1}; }, false, true},
    {"muon", [](Recipe& r) { r.optimizer = MuonConfig{.lr = 0.01}; }, false, true},
    {"fused lion",
     [](Recipe& r) {
       r.optimizer = LionConfig();
       r.optimizations.fused_optimizer = true;
     },
     false, true},
    {"fused lamb",
     [](Recipe& r) {
       r.optimizer = LambConfig{.weight_decay = 0.1};
       r.optimizations.fused_optimizer = true;
     },
     false, true},
    {"fused lars",
     [](Recipe& r) {
       r.optimizer = LarsConfig{.weight_decay = 0.01};
       r.optimizations.fused_optimizer = true;
     },
     false, true},
    {"clipping by value", [](Recipe& r) { r.train.clip_value = 0.01; }, false, true},
    {"fused adam, a loss scale and clipping",
     [](Recipe& r) {
       r.optimizer = AdamConfig();
       r.optimizations.fused_optimizer = true;
       r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 1 << 20, .growth_interval = 3}};
       r.train.max_grad_norm = 0.5;
     }},
    {"device_preprocess", [](Recipe& r) { r.optimizations.device_preprocess.on = true; }, true},
    {"data set cached on the device", [](Recipe& r) { r.data.cache.kind = CacheKind::device; }, true},
    {"skipping non-finite steps", [](Recipe& r) { r.train.on_nonfinite = OnNonfinite::skip; }},
    {"three workers", [](Recipe& r) { r.data.num_workers = 3, r.data.persistent_workers = true; }, true},
};

Plan plan_of(const Recipe& recipe) { return make_plan(recipe, Machine{.cpu = "test", .cores = 2}); }

/// Compares a run stopped after step k and resumed, for each k in `stops`, with the uninterrupted run.
void compare_stops(const Recipe& recipe, const std::vector<int64_t>& stops) {
  const Plan plan = plan_of(recipe);
  const PartialRun uninterrupted = train_part(plan);
  REQUIRE(uninterrupted.losses.size() == static_cast<size_t>(*recipe.train.max_steps));
  for (const int64_t k : stops) {
    INFO("stopped after step " << k);
    const PartialRun resumed = train_in_two(plan, plan, k, /*background=*/k % 2 == 0);
    CHECK(resumed.losses == uninterrupted.losses);
    CHECK(resumed.steps == uninterrupted.steps);
    CHECK(resumed.outcome.samples == uninterrupted.outcome.samples);
    REQUIRE(first_difference(resumed.state, uninterrupted.state) == "");
  }
}

bool has_effect(const Recipe& recipe, const std::string& name) {
  for (const PlannedSwitch& planned : plan_of(recipe).switches)
    if (planned.name == name) return planned.outcome.has_effect;
  return false;
}

std::vector<int64_t> every_step() {
  std::vector<int64_t> all(kSteps - 1);
  std::iota(all.begin(), all.end(), 1);
  return all;
}

}  // namespace

TEST_CASE("a run stopped after any step and resumed is bit-identical to an uninterrupted one") {
  at::set_num_threads(1);
  for (const DatasetKind dataset :
       {DatasetKind::fake_cifar10, DatasetKind::synthetic, DatasetKind::cifar10, DatasetKind::image_folder})
    for (const Feature& feature : kFeatures) {
      if (feature.needs_files && dataset == DatasetKind::synthetic) continue;  // nothing is loaded
      if (feature.once && dataset != DatasetKind::fake_cifar10) continue;
      DYNAMIC_SECTION(word_of(dataset) << ", " << feature.name) {
        Recipe recipe = small_recipe(dataset);
        feature.turn_on(recipe);
        compare_stops(recipe, every_step());
      }
    }
}

TEST_CASE("a run on packed or tar files resumes bit-exactly after any step") {
  at::set_num_threads(1);
  compare_stops(small_recipe(GENERATE(DatasetKind::packed, DatasetKind::tar)), every_step());
}

TEST_CASE("a GPT-2 that recomputes activations, dropout included, resumes bit-exactly after any step") {
  at::set_num_threads(1);
  const auto policy = GENERATE(activation_checkpointing::Policy::full, activation_checkpointing::Policy::selective);
  Recipe recipe = small_recipe(DatasetKind::fake_cifar10);
  use_gpt2(recipe);
  recipe.model.dropout = 0.2;
  recipe.data.batch_size = 2, recipe.train.gradient_accumulation_steps = 2;
  recipe.optimizations.activation_checkpointing = {true, {.policy = policy}};
  compare_stops(recipe, every_step());
}

TEST_CASE("resume is bit-exact with each switch of the catalogue") {
  at::set_num_threads(1);
  for (const CatalogueEntry& entry : catalogue()) DYNAMIC_SECTION(entry.info.name) {
      // The mlp, or the ResNet if the switch has an effect only there.
      Recipe small = small_recipe(DatasetKind::fake_cifar10);
      small.data.size = 96;  // the catalogue's value for data.batch_size is larger than the default
      Recipe recipe = turned_on(small, entry);
      Recipe convolutions = recipe;
      convolutions.model = {.name = ModelKind::resnet18, .stem = StemKind::cifar};
      if (!has_effect(recipe, entry.info.name) && has_effect(convolutions, entry.info.name)) recipe = convolutions;
      recipe.train.max_steps = 4;
      compare_stops(recipe, {3});
    }
}

TEST_CASE("resume of a program is bit-exact with each switch of the catalogue") {
  at::set_num_threads(1);
  for (const auto& use : {use_residual, use_mixed, use_written})
    for (const CatalogueEntry& entry : catalogue()) {
      Recipe recipe = small_recipe(DatasetKind::fake_cifar10);
      recipe.data.size = 96;
      use(recipe);
      if (recipe.data.dataset == DatasetKind::tokens && entry.info.name == std::string("cache")) continue;
      recipe = turned_on(recipe, entry);
      recipe.train.max_steps = 4;
      INFO(entry.info.name << ", " << *recipe.model.path);
      if (has_effect(recipe, entry.info.name)) compare_stops(recipe, {3});
    }
}

TEST_CASE("batch-norm statistics and convolutions resume bit-exactly") {
  const bool all_on = GENERATE(false, true);
  Recipe recipe = small_recipe(DatasetKind::fake_cifar10);
  recipe.model = {.name = ModelKind::resnet18, .stem = StemKind::cifar};
  recipe.train.max_steps = 5;  // eleven million parameters
  if (all_on) {
    recipe.optimizations.channels_last = recipe.optimizations.fused_optimizer = recipe.optimizations.amp.on = true;
    recipe.train.on_nonfinite = OnNonfinite::rerun;
  }
  compare_stops(recipe, {3});
}

TEST_CASE("a language model resumes bit-exactly within and after an epoch of tokens") {
  at::set_num_threads(1);
  Recipe recipe = small_recipe(DatasetKind::fake_cifar10);
  use_gpt2(recipe);
  recipe.model.dropout = 0.1;
  recipe.data.batch_size = 9;  // an epoch has eight steps
  recipe.optimizer = AdamWConfig();
  recipe.train.max_grad_norm = 0.5;
  recipe.data.num_workers = GENERATE(0, 2);
  recipe.data.drop_last = GENERATE(true, false);
  compare_stops(recipe, {3, 8, 10});
}

TEST_CASE("resuming with another number of workers is bit-exact") {
  for (const int64_t workers : {0, 1, 3}) {
    Recipe recipe = small_recipe(DatasetKind::image_folder), other = recipe;
    other.data.num_workers = workers;
    recipe.data.num_workers = 2;
    const PartialRun uninterrupted = train_part(plan_of(recipe));
    for (const int64_t k : {2, 6, 9})
      CHECK(first_difference(train_in_two(plan_of(recipe), plan_of(other), k).state, uninterrupted.state) == "");
  }
}

TEST_CASE("a run resumed several times is bit-identical to an uninterrupted one") {
  const Plan plan = plan_of(small_recipe(DatasetKind::fake_cifar10));
  const PartialRun uninterrupted = train_part(plan);
  const TemporaryFolder folder;
  std::vector<double> losses;
  std::optional<ArchiveReader> state;
  PartialRun left;
  for (const int64_t k : {3, 4, 10, 12}) {
    CheckpointWriter writer({.root = folder / "checkpoints"});
    left = train_part(plan, k, &writer, state ? &*state : nullptr);
    losses.insert(losses.end(), left.losses.begin(), left.losses.end());
    state = read_newest_checkpoint(folder / "checkpoints", [](const std::string& why) { FAIL(why); });
  }
  CHECK(losses == uninterrupted.losses);
  CHECK(first_difference(left.state, uninterrupted.state) == "");
}

TEST_CASE("a resumed run with the same global batch, split differently, sees the same samples") {
  Recipe recipe = small_recipe(DatasetKind::fake_cifar10), other = recipe;
  recipe.model.dropout = other.model.dropout = 0;
  other.data.batch_size = 2;
  other.train.gradient_accumulation_steps = 2;
  const PartialRun uninterrupted = train_part(plan_of(recipe)),
                   resumed = train_in_two(plan_of(recipe), plan_of(other), 5);
  for (size_t i = 0; i < uninterrupted.losses.size(); ++i)
    CHECK(resumed.losses[i] == Approx(uninterrupted.losses[i]).epsilon(1e-5));
}

}  // namespace resume_tests
