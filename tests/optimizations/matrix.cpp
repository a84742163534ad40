// Real runs of every switch that works on this machine, compared with the plain plan from the same seed.
#include "device/device_allocator.h"
#include "debugging/wait_finder.h"
#include "device/tensor.h"
#include "recipe/plan_text.h"
#include "support/catch.h"
#include "support/plans.h"
#include "support/programs.h"
#include "support/turned_on.h"

#include <cmath>
#include <fstream>
#include <map>
#include <regex>
#include <set>

namespace matrix_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// A switch, alone or with other options, on top of small_recipe().
struct Entry {
  std::string name;
  std::function<void(Recipe&)> turn_on;
  std::function<void(Recipe&)> both = [](Recipe&) {};  ///< applied to the plain recipe too
  std::optional<double> tolerance = std::nullopt;      ///< relative, of each loss; null: the switch's Info::tolerance
};

/// Puts the flip before the resize, so that only the resize moves to the device.
void flip_first(Recipe& recipe) { std::swap(recipe.data.transforms.at(0), recipe.data.transforms.at(1)); }

/// The usual augmentation of CIFAR-10.
void crop_too(Recipe& recipe) {
  recipe.data.transforms.insert(recipe.data.transforms.begin() + 1, RandomCropConfig{16, 16, 2});
}

void use_mlp(Recipe& recipe) { recipe.model = {.name = ModelKind::mlp, .hidden = {32}}; }

/// Its head starts at zero, so only a larger learning rate tells its losses from each other.
void use_vit(Recipe& recipe) {
  recipe.model = {.name = ModelKind::vit, .patch = 4, .layers = 2, .heads = 2, .width = 128};
  recipe.optimizer = SgdConfig{.lr = 0.05};
}

void use_language_model(Recipe& recipe) {
  use_gpt2(recipe);
  recipe.optimizer = SgdConfig{.lr = 0.05, .weight_decay = 0.1, .common = {.no_decay = {"norm", "bias"}}};
}
void use_language_model_in_math(Recipe& recipe) {
  use_language_model(recipe);
  recipe.optimizations.attention = AttentionKernel::math;
}
void use_language_model_in_bfloat16(Recipe& recipe) {
  use_language_model(recipe);
  recipe.optimizations.amp.on = true;
}

void smooth_labels(Recipe& recipe) { recipe.train.label_smoothing = 0.1; }

/// The usual augmentation of ImageNet.
void resized_crop(Recipe& recipe) { recipe.data.transforms.at(0) = RandomResizedCropConfig{16, 16}; }

/// The device then writes the type that the step computes in. ImageNet's mean and deviation, because with 0.5 all grey
/// levels would be nearly exact in bfloat16, and wrong rounding would not show.
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

void hold_bfloat16(Recipe& recipe) { recipe.optimizations.precision.on = true; }
void fuse_kernels(Recipe& recipe) { recipe.optimizations.fused_kernels = true; }
void use_winograd(Recipe& recipe) { recipe.optimizations.winograd.on = true; }
void use_winograd_in_bfloat16(Recipe& recipe) {
  recipe.optimizations.winograd = {true, {.products = winograd::ProductType::bfloat16}};
}
void cache_on_device(Recipe& recipe) { recipe.data.cache.kind = CacheKind::device; }
void preprocess(Recipe& recipe) { recipe.optimizations.device_preprocess.on = true; }
void preprocess_with_resize(Recipe& recipe) { recipe.optimizations.device_preprocess = {true, {.resize = true}}; }

/// Switches combined with options that affect them. Each switch alone, for two built-in networks and four
/// programs, comes from the catalogue.
const std::vector<Entry> kVariants = {
    {"num_workers", [](Recipe& r) { r.data.num_workers = 2; }},
    {"prefetch_factor", [](Recipe& r) { r.data.num_workers = 2, r.data.prefetch_factor = 3; }},
    {"persistent_workers", [](Recipe& r) { r.data.num_workers = 2, r.data.persistent_workers = true; }},
    {"non_blocking", [](Recipe& r) { r.data.pin_memory = r.data.non_blocking = true; }},
    {"cache", [](Recipe& r) { r.data.cache.kind = CacheKind::device, r.data.num_workers = 2; }, crop_too},
    {"cache", cache_on_device, in_bfloat16},
    {"cache", cache_on_device, resized_crop},
    {"fused_kernels", fuse_kernels, smooth_labels},
    {"fused_kernels", fuse_kernels, in_float16, 5e-2},
    {"fused_kernels", fuse_kernels, use_mlp, 1e-5},
    {"winograd", use_winograd, in_bfloat16, 5e-2},
    {"winograd", use_winograd, in_float16, 5e-2},
    {"winograd", use_winograd, with_weight_copies, 5e-2},
    {"winograd", use_winograd_in_bfloat16, in_bfloat16, 5e-2},
    {"amp",
     [](Recipe& r) {
       r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 64}};
     }},
    {"device_preprocess", preprocess, in_bfloat16},
    {"device_preprocess", preprocess, in_float16},
    {"device_preprocess", preprocess, in_bfloat16_nhwc},
    {"device_preprocess", preprocess_with_resize, flip_first},
    {"device_preprocess", preprocess_with_resize, crop_too},
    {"device_preprocess", preprocess_with_resize, resized_crop},
    {"attention", [](Recipe& r) { r.optimizations.attention = AttentionKernel::automatic; },
     use_language_model_in_math},
    {"amp", [](Recipe& r) { r.optimizations.amp.on = true; }, use_language_model},
    {"precision", hold_bfloat16, use_language_model_in_bfloat16},
    {"precision", hold_bfloat16, in_bfloat16_nhwc},
    {"set_to_none", [](Recipe& r) { r.optimizations.set_to_none = true; }, use_language_model},
    {"fused_optimizer", [](Recipe& r) { r.optimizations.fused_optimizer = true; }, use_language_model},
    {"fused_optimizer", [](Recipe& r) { r.optimizations.fused_optimizer = true; }, use_language_model_in_bfloat16},
    {"fused_kernels", fuse_kernels, use_language_model, 1e-5},
    {"fused_kernels", fuse_kernels, use_language_model_in_bfloat16, 5e-2},
    {"num_workers", [](Recipe& r) { r.data.num_workers = 2; }, use_language_model},
};

/// Not all switches are for texts: tokens are not cached, and the tensors of these models are too small for an
/// allocator.
bool fits(const CatalogueEntry& entry, const std::function<void(Recipe&)>& model) {
  Recipe recipe;
  model(recipe);
  return recipe.data.dataset != DatasetKind::tokens ||
         (entry.info.name != std::string("cache") && entry.info.name != std::string("host_allocator"));
}

std::vector<Entry> matrix() {
  std::vector<Entry> all;
  const std::vector<std::function<void(Recipe&)>> models{[](Recipe&) {}, use_vit,  use_residual,
                                                         use_mixed,      use_text, use_written};
  for (const CatalogueEntry& entry : catalogue())
    for (const auto& both : models)
      if (fits(entry, both))
        all.push_back({entry.info.name, [entry](Recipe& recipe) { recipe = turned_on(recipe, entry); }, both});
  all.insert(all.end(), kVariants.begin(), kVariants.end());
  return all;
}

Info info_of(const std::string& name) {
  for (const CatalogueEntry& entry : catalogue())
    if (entry.info.name == name) return entry.info;
  FAIL("the catalogue has no " << name);
  return {};
}

Recipe small_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model.stem = StemKind::cifar;
  recipe.data.size = 40;
  recipe.data.batch_size = 8;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 16}, RandomHorizontalFlipConfig{},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  recipe.train.max_steps = 7;  // more than an epoch, which has five
  recipe.debug.find_syncs = true;
  recipe.optimizer = SgdConfig{.lr = 1e-4};  // with a larger rate, each step of a fresh ResNet amplifies rounding
                                             // tenfold, and another summation order would train something else
  return recipe;
}

struct Result {
  std::vector<double> losses;
  std::vector<SwitchReceipt> receipts;
  std::vector<HiddenWait> hidden_waits;
  NamedTensors weights;
};

Result train(const Recipe& recipe) {
  Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  if (plan.process.caching_allocator) install_caching_allocator(plan.process.huge_pages);  // as the program does
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  const StepTrace& trace = trainer.outcome().trace;
  Result result{rows.losses(), receipts(plan.switches, trace), trace.hidden_waits.value(), {}};
  for (const auto& [name, tensor] : trainer.parts().model().parameters())
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

TEST_CASE("the catalogue lists every switch of a plan, in the plan's order") {
  Recipe recipe = small_recipe();
  std::vector<std::string> in_catalogue, in_plan;
  for (const CatalogueEntry& entry : catalogue()) {
    in_catalogue.push_back(entry.info.name);
    recipe = turned_on(recipe, entry);
  }
  for (const auto& entry : make_plan(recipe, Machine{.cpu = "test", .cores = 2}).switches)
    in_plan.push_back(entry.name);
  CHECK(in_plan == in_catalogue);
  for (const Entry& variant : kVariants) info_of(variant.name);
}

TEST_CASE("every switch trains, is observed and agrees with the plain plan") {
  static std::map<std::string, Result> plain_results;  // by recipe: many entries share theirs
  static const std::vector<Entry> entries = matrix();
  for (const Entry& entry : entries) {
    DYNAMIC_SECTION(entry.name << ", entry "
                               << &entry - entries.data()) {  // Catch2 runs only the first of sections with equal names
      Recipe recipe = small_recipe();
      entry.both(recipe);
      const std::string key = recipe_yaml(recipe);
      if (!plain_results.contains(key)) plain_results.emplace(key, train(recipe));
      const Result& plain = plain_results.at(key);
      entry.turn_on(recipe);
      const Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
      CHECK_THAT(plan_text(plan), ContainsSubstring(entry.name));
      const auto planned = std::find_if(plan.switches.begin(), plan.switches.end(),
                                        [&](const PlannedSwitch& s) { return s.name == entry.name; });
      REQUIRE(planned != plan.switches.end());
      const bool has_effect = planned->outcome.has_effect;

      const Result switched = train(recipe);
      const auto receipt = std::find_if(switched.receipts.begin(), switched.receipts.end(),
                                        [&](const auto& r) { return r.name == entry.name; });
      REQUIRE(receipt != switched.receipts.end());
      INFO(receipt->receipt.observed << " / " << receipt->receipt.reason);
      CHECK(receipt->receipt.effective == has_effect);
      CHECK(receipt->receipt.reason.empty() == has_effect);
      INFO(hidden_waits_text(switched.hidden_waits, 2, /*on_cpu=*/true));
      CHECK(switched.hidden_waits.empty());

      const Info info = info_of(entry.name);
      REQUIRE(switched.losses.size() == plain.losses.size());
      for (const double loss : switched.losses) CHECK(std::isfinite(loss));
      if (!has_effect || info.exactness == Exactness::same_bits) {
        CHECK(switched.losses == plain.losses);
        CHECK(same_bits(switched.weights, plain.weights));
      } else if (info.exactness == Exactness::same_math) {
        for (size_t i = 0; i < plain.losses.size(); ++i)
          CHECK(switched.losses[i] == Approx(plain.losses[i]).epsilon(entry.tolerance.value_or(info.tolerance)));
      }
    }
  }
}

TEST_CASE("switches that work on a CPU are not reported as without effect there") {
  const auto has_effect = [](const Recipe& recipe, const std::string& name) {
    for (const auto& planned : make_plan(recipe, Machine{.cpu = "test", .cores = 2}).switches)
      if (planned.name == name) return planned.outcome.has_effect;
    return false;
  };
  const std::set<std::string> alone{"cache",         "batch_size",        "num_workers",    "host_allocator",
                                    "channels_last", "fused_kernels",     "winograd",       "amp",
                                    "set_to_none",   "device_preprocess", "fused_optimizer"};
  for (const CatalogueEntry& entry : catalogue())
    if (alone.contains(entry.info.name)) CHECK(has_effect(turned_on(small_recipe(), entry), entry.info.name));
  for (const Entry& variant : kVariants) {
    Recipe recipe = small_recipe();
    variant.both(recipe);
    variant.turn_on(recipe);
    CHECK(has_effect(recipe, variant.name) == (variant.name != "non_blocking"));
  }
}

TEST_CASE("switches for networks of convolutions say why they have no effect on a vision transformer") {
  Recipe recipe = small_recipe();
  use_vit(recipe);
  recipe.optimizations.channels_last = recipe.optimizations.winograd.on = recipe.optimizations.fused_kernels = true;
  std::map<std::string, Outcome> outcomes;
  for (const PlannedSwitch& planned : make_plan(recipe, Machine{.cpu = "test", .cores = 2}).switches)
    outcomes[planned.name] = planned.outcome;
  CHECK_FALSE(outcomes.at("channels_last").has_effect);
  CHECK(outcomes.at("channels_last").text == "the vit has no images between its layers");
  CHECK_FALSE(outcomes.at("winograd").has_effect);
  CHECK(outcomes.at("winograd").text == "the vit has no 3×3 convolutions");
  CHECK(outcomes.at("fused_kernels").has_effect);
  CHECK(outcomes.at("fused_kernels").text ==
        "layer norm with the addition before it and GELU with the bias before it (one pass each way), loss with its "
        "gradient (one)");
}

TEST_CASE("the table in the README matches the catalogue") {
  std::ifstream page(std::filesystem::path(OPTIMIZATIONS) / "README.md");
  REQUIRE(page);
  std::vector<std::string> on_page, in_catalogue;
  std::set<std::string> folders_on_page, folders;
  const std::regex row(R"(^\| `(\w+)` \| `([\w.]+)` \| `(\w+)` \|.*)");
  for (std::string line; std::getline(page, line);)
    if (std::smatch cells; std::regex_match(line, cells, row)) {
      folders_on_page.insert(cells[1]);
      on_page.push_back(cells[2].str() + " " + cells[3].str());
    }
  for (const CatalogueEntry& entry : catalogue())
    in_catalogue.push_back(fmt::format("{} {}", entry.key, word_of(entry.info.exactness)));
  for (const auto& entry : std::filesystem::directory_iterator(OPTIMIZATIONS))
    if (entry.is_directory()) folders.insert(entry.path().filename());
  CHECK(on_page == in_catalogue);
  CHECK(folders_on_page == folders);
}

TEST_CASE("the receipt exposes a switch that was made ineffective on purpose") {
  // Put float32 into the precision slot: the plan expects 16 bits, the dispatcher sees float32.
  Recipe recipe = small_recipe();
  recipe.optimizations.amp.on = true;
  Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  plan.precision =
      Slot<Precision>("precision", "float32", [](const BuildContext&) { return std::make_unique<FullPrecision>(); });
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  const auto all = receipts(plan.switches, trainer.outcome().trace);
  REQUIRE(all.size() == 2);  // the other is the batch size
  CHECK(all[1].name == "amp");
  CHECK_FALSE(all[1].receipt.effective);
  CHECK_THAT(all[1].receipt.observed, ContainsSubstring("0 of"));
}

TEST_CASE("the receipt of fused_kernels counts training and not evaluation") {
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

TEST_CASE("the receipt of fused_kernels names a part that did not run") {
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

TEST_CASE("in a run of one step, switches that could not be observed are not reported as effective") {
  Recipe recipe = small_recipe();
  recipe.train.max_steps = 1;
  recipe.data.num_workers = 1;
  recipe.data.persistent_workers = recipe.optimizations.set_to_none = true;
  for (const auto& entry : train(recipe).receipts)
    if (entry.name != "num_workers" && entry.name != "batch_size") CHECK_FALSE(entry.receipt.effective);
}

TEST_CASE("strict refuses a switch without effect, and a switch can be excluded on request") {
  Recipe recipe = small_recipe();
  recipe.data.batch_size = DataConfig().batch_size;
  recipe.data.size = 320;
  recipe.optimizations.tf32 = true;
  recipe.strict = true;
  CHECK_THROWS_WITH(make_plan(recipe, Machine{}), ContainsSubstring("tf32 has no effect here"));
  const Plan plan = make_plan(recipe, Machine{}, {}, {"tf32"});
  CHECK(plan.switches.empty());
  CHECK(plan.notes.size() == 1);
}

TEST_CASE("a plan for an assumed GPU turns on what that GPU supports") {
  Recipe recipe = small_recipe();
  recipe.device = "auto";
  recipe.optimizations.tf32 = recipe.optimizations.cudnn_benchmark = true;
  recipe.data.pin_memory = recipe.data.non_blocking = true;
  const auto [machine, position] = assume(Machine{}, "gpus=2,arch=sm_80,memory_gib=40");
  CHECK(position.ranks == 2);
  const Plan ampere = make_plan(recipe, machine, position);
  CHECK(ampere.device.is_cuda());
  for (const auto& entry : ampere.switches) CHECK(entry.outcome.has_effect);
  const Plan turing = make_plan(recipe, assume(Machine{}, "gpus=1,arch=sm_75").machine);
  CHECK_FALSE(std::find_if(turing.switches.begin(), turing.switches.end(), [](const auto& e) {
                return e.name == "tf32";
              })->outcome.has_effect);
  CHECK_THROWS_WITH(assume(Machine{}, "gpu=1"), ContainsSubstring("--assume knows"));
}

}  // namespace matrix_tests
