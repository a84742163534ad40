#include "base/files/files.h"
#include "config/leads.h"
#include "config/suggest.h"
#include "data/transform_config.h"
#include "kernels/winograd/winograd.h"
#include "optimizations/amp/amp.h"
#include "recipe/make_plan.h"
#include "recipe/plan_text.h"
#include "recipe/recipe_io.h"
#include "recipe/validate.h"
#include "support/catch.h"

#include <unistd.h>

#include <set>

using namespace trainopt;

namespace {

std::filesystem::path temporary(const std::string& text) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("trainopt-recipe-{}.yaml", ::getpid());
  write_file(path, text);
  return path;
}

LoadedRecipe load_text(const std::string& text, std::vector<std::string> overrides = {}) {
  return load_recipe({{temporary(text)}, std::move(overrides)});
}

std::string problem_of(const std::string& text) {
  try {
    load_text(text);
  } catch (const RecipeErrors& errors) {
    return errors.what();
  }
  return "";
}

/// Keys and messages of what is wrong with these overrides.
std::vector<std::pair<std::string, std::string>> problems_of(const std::vector<std::string>& overrides) {
  std::vector<std::pair<std::string, std::string>> all;
  try {
    load_recipe({.files = {}, .overrides = overrides}, std::nullopt);
  } catch (const RecipeErrors& errors) {
    for (const Problem& problem : errors.problems()) all.emplace_back(problem.key, problem.message);
  }
  return all;
}

}  // namespace

TEST_CASE("every lead names keys and sections that exist, and values of their types") {
  Recipe recipe;
  const Outline outline = outline_of(recipe);
  const auto has_type = [&](const std::string& key, const std::string& value) {
    for (const auto& [at, message] : problems_of({key + "=" + value})) {
      INFO(at << ": " << message);
      CHECK_FALSE((at == key && message.starts_with("must be")));
      CHECK(message.find("unknown key") == std::string::npos);
    }
  };
  for (const Lead& lead : all_leads()) {
    INFO(lead.theirs);
    for (const std::string& path : lead.paths) {
      const size_t colon = path.find(": ");
      CHECK(option_at(outline, path.substr(0, colon)) != nullptr);
      if (colon != std::string::npos) has_type(path.substr(0, colon), path.substr(colon + 2));
    }
    const size_t equals = lead.theirs.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = lead.theirs.substr(0, equals);
    const Option* option = option_at(outline, key);
    REQUIRE(option != nullptr);
    const bool is_list = option->type.starts_with("list of");
    const size_t colon = lead.value.starts_with('{') ? std::string::npos : lead.value.find(": ");
    if (colon != std::string::npos)
      has_type(lead.value.substr(0, colon), lead.value.substr(colon + 2));
    else if (!lead.value.empty() && lead.value.find(" or ") == std::string::npos)
      has_type(key, is_list && !lead.value.starts_with('[') ? "[" + lead.value + "]" : lead.value);
  }
}

TEST_CASE("options are found by words of their values and meanings, and by other tools' names") {
  const auto all = options_of<Recipe>();
  const auto finds = [&](const std::string& words, const std::string& path) {
    const auto found = options_with_words(all, words);
    INFO(words);
    CHECK(found.size() < 10);
    CHECK(std::any_of(found.begin(), found.end(), [&](const OptionHelp& option) { return option.path == path; }));
  };
  finds("mixed precision", "optimizations.amp");
  finds("Flash-Attention", "optimizations.attention");
  finds("label smoothing", "train.label_smoothing");
  finds("onecycle", "scheduler.name");
  CHECK(options_under(all, "data.bahc").empty());
  CHECK(options_under(all, "batch_size").size() == 2);
  CHECK(nearest_name(all, "data.bach_size") == "data.batch_size");
}

TEST_CASE("another model drops the options that it does not have, as another optimizer does") {
  const std::string mlp = "model: {name: mlp, hidden: [64], dropout: 0.5, num_classes: 7}";
  const LoadedRecipe resnet = load_text(mlp, {"model.name=resnet50"});
  CHECK(resnet.recipe.model.num_classes == 7);
  CHECK(resnet.recipe.model.hidden == ModelConfig{}.hidden);
  REQUIRE(resnet.notes.size() == 1);
  CHECK_THAT(resnet.notes.front(),
             ContainsSubstring("earlier options of mlp are dropped: model.hidden, model.dropout"));
  CHECK(load_text("model: {stem: cifar}", {"model.name=resnet50"}).recipe.model.stem == StemKind::cifar);
  CHECK(load_text("model: {stem: cifar}", {"model.name=mlp"}).notes.size() == 1);
  CHECK(load_text(mlp, {"model.dropout=0.25"}).recipe.model.dropout == 0.25);
  CHECK_THROWS_WITH(
      load_text(mlp, {"model.name=resnet18", "model.dropout=0.25"}),
      ContainsSubstring(
          "model.dropout: resnet18 does not have this, only vit_s_16, vit_b_16, vit, gpt2, mlp; remove it"));
}

TEST_CASE("a vit drops the options of other models, and they its") {
  const std::string vit = "model: {name: vit, patch: 4, layers: 2, dropout: 0.5}";
  const LoadedRecipe fixed = load_text(vit, {"model.name=vit_b_16"});
  REQUIRE(fixed.notes.size() == 1);
  CHECK_THAT(fixed.notes.front(), ContainsSubstring("vit_b_16 replaces vit, so earlier options of vit are dropped: "
                                                    "model.patch, model.layers"));
  CHECK(fixed.recipe.model.dropout == 0.5);
  CHECK(load_text(vit, {"model.name=resnet18"}).recipe.model.dropout == 0);
  CHECK(load_text("model: {hidden: [8], name: mlp}", {"model.name=vit_s_16"}).recipe.model.hidden ==
        ModelConfig{}.hidden);
  const LoadedRecipe small = load_text("model: {name: vit, num_heads: 4, depth: 2, hidden_dim: 64, patch_size: 8}");
  const auto [layers, heads, width] = transformer_size(small.recipe.model);
  CHECK(layers + heads + width + small.recipe.model.patch == 2 + 4 + 64 + 8);
}

TEST_CASE("options that do not fit the model are refused") {
  CHECK_THAT(problem_of("model: {name: vit_s_16, width: 64}"),
             ContainsSubstring("model.width: vit_s_16 does not have this, only vit, gpt2; remove it"));
  CHECK_THAT(problem_of("model: {name: vit, heads: 5}"),
             ContainsSubstring("model.heads: the width must be a multiple of the heads: 192, 5"));
  CHECK_THAT(problem_of("model: {replace_head: true}"), ContainsSubstring("model.replace_head: needs model.weights"));
  CHECK_THAT(problem_of("model: {name: vit_s_16}\nparallel: {sync_batch_norm: true}"),
             ContainsSubstring("parallel.sync_batch_norm: the vit_s_16 has no batch-norm; remove this key"));
  const std::string odd = "model: {name: vit_s_16}\ndevice: cpu\ndata: {transforms: [{resize: 40}]}";
  CHECK_THROWS_WITH(make_plan(load_text(odd).recipe, Machine{}),
                    ContainsSubstring("patches of 16 × 16 pixels, and 40 × 40 pixels cannot be divided so"));
}

TEST_CASE("an option name of another tool is answered with the matching optimization") {
  const auto hint = [](const std::string& text, const std::string& answer) {
    CHECK_THAT(problem_of(text), ContainsSubstring("unknown key (" + answer + ")"));
  };
  hint("amp_fp16: true", "did you mean 'optimizations.amp: {dtype: float16}'? where it is true");
  hint("dtype: bfloat16",
       "did you mean 'optimizations.amp' or 'optimizations.precision' or 'optimizations.amp.dtype'? amp computes in "
       "bfloat16, precision holds weights in it");
  hint("torch_compile: true", "did you mean 'optimizations.fused_kernels'?");
  hint("fp8: true", "did you mean 'optimizations.fp8'?");
  hint("amp_fp8: true", "did you mean 'optimizations.fp8'?");
}

TEST_CASE("the catalogue's keys and values turn each switch on") {
  std::set<std::string> names;
  for (const CatalogueEntry& entry : catalogue()) {
    CHECK(names.insert(entry.info.name).second);
    CHECK((entry.info.tolerance > 0) == (entry.info.exactness == Exactness::same_math));
    const Recipe recipe = load<Recipe>({.files = {}, .overrides = {entry.key + "=" + entry.value}}).config;
    CHECK(recipe_json(recipe) != recipe_json(Recipe()));
  }
  CHECK(names.size() >= 19);
}

TEST_CASE("unused switches are those that are off and would have an effect here") {
  const auto unused = [](const std::string& text) {
    const Recipe recipe = load_text(text).recipe;
    std::set<std::string> changes;
    for (const auto& one : unused_switches(recipe, make_plan(recipe, Machine{}))) {
      CHECK_FALSE(one.text.empty());
      changes.insert(one.change);
    }
    return changes;
  };
  const auto plain = unused("model: {name: resnet18}\n");
  CHECK(plain.contains("optimizations.channels_last=true"));
  CHECK_FALSE(plain.contains("optimizations.tf32=true"));  // no effect on a CPU
  const auto one_on = unused("model: {name: resnet18}\noptimizations: {channels_last: true}\n");
  CHECK_FALSE(one_on.contains("optimizations.channels_last=true"));
  CHECK(one_on.contains("optimizations.fused_optimizer=true"));
  CHECK_FALSE(unused("model: {name: vit_s_16}\n").contains("optimizations.fp8=true"));  // trains something else
}

TEST_CASE("a plan says which switches are not expected to pay on this CPU") {
  const auto doubt = [](const std::string& text) {
    const Plan plan = make_plan(load_text("device: cpu\n" + text).recipe, Machine{});
    std::string why;
    for (const PlannedSwitch& each : plan.switches) why += each.doubt;
    CHECK((plan_text(plan).find("; not expected to pay here: " + why) != std::string::npos) == !why.empty());
    std::string in_json;
    const Json json = plan_json(plan);
    for (const Json& each : json.at("switches")) in_json += each.at("doubt").get<std::string>();
    CHECK(in_json == why);
    return why;
  };
  CHECK_THAT(doubt("model: {name: vit_s_16}\noptimizations: {fp8: true}"), ContainsSubstring("in float32"));
  CHECK(doubt("model: {name: mlp}\noptimizations: {amp: true}").empty() == amp::cpu_convolves(at::kBFloat16));
  CHECK(doubt("optimizations: {amp: true}").empty());  // convolutions then compute in float32
  CHECK(doubt("optimizations: {winograd: true}").empty());
  CHECK(doubt("optimizations: {winograd: {products: bfloat16}}").empty() == kernels::winograd::has_bfloat16_products());
}

TEST_CASE("the defaults are valid and survive being written and loaded") {
  CHECK(validate(Recipe()).empty());
  const std::string written = recipe_yaml(Recipe());
  CHECK(recipe_yaml(load_text(written).recipe) == written);
  CHECK(recipe_yaml(load_text(documented_recipe()).recipe) == written);
}

TEST_CASE("all contradictions are reported at once, with their lines") {
  const std::string problems = problem_of(
      "data:\n  non_blocking: true\n  dataset: cifar10\noptimizations:\n  cuda_graph: true\nparallel:\n  "
      "sharding_strategy: zero2\n  async_updates: {staleness: 1}\n"
      "checkpoint: {resume: auto}\n");
  CHECK_THAT(problems, ContainsSubstring(":2:"));
  CHECK_THAT(problems, ContainsSubstring("data.non_blocking: needs data.pin_memory"));
  CHECK_THAT(problems, ContainsSubstring("data.path: cifar10 needs a folder"));
  CHECK_THAT(problems, ContainsSubstring(":5:"));
  CHECK_THAT(problems, ContainsSubstring("optimizations.cuda_graph: needs optimizations.fused_optimizer: true"));
  CHECK_THAT(problems, ContainsSubstring("parallel.async_updates.staleness: needs parallel.sharding_strategy: none"));
  CHECK_THAT(problems, ContainsSubstring("checkpoint.resume: auto needs run_dir"));
}

TEST_CASE("keys that the chosen variant would ignore are refused") {
  CHECK_THAT(problem_of("data: {dataset: synthetic, transforms: [{resize: 32}]}"),
             ContainsSubstring("data.transforms"));
  CHECK_THAT(problem_of("data: {path: somewhere}"), ContainsSubstring("needs data.dataset, the kind of data"));
  CHECK_THAT(problem_of("data: {dataset: synthetic, path: somewhere}"), ContainsSubstring("synthetic reads no files"));
  CHECK_THAT(problem_of("model: {dropout: 0.5}"), ContainsSubstring("only vit_s_16, vit_b_16, vit"));
  CHECK_THAT(problem_of("optimizer: {name: adamw, nesterov: true}"), ContainsSubstring("nesterov"));
  CHECK_THAT(problem_of("optimizer: {nesterov: true, momentum: 0}"),
             ContainsSubstring("needs optimizer.momentum above 0"));
  CHECK_THAT(problem_of("train: {max_time: 10s}\nscheduler: {name: cosine}"),
             ContainsSubstring("scheduler.total_steps"));
  CHECK_THAT(problem_of("device: gpu"), ContainsSubstring("must be auto, cpu, cuda or cuda:N: gpu"));
  CHECK_THAT(problem_of("deterministic: true\noptimizations: {cudnn_benchmark: true}"),
             ContainsSubstring("deterministic"));
}

TEST_CASE("schedules whose numbers do not go together are refused") {
  const auto schedule = [](const std::string& options) { return problem_of("scheduler: {name: " + options + "}"); };
  CHECK_THAT(schedule("cyclic, base_lr: 0.5"), ContainsSubstring("must not be above optimizer.lr"));
  CHECK_THAT(schedule("cyclic, base_lr: 0.5, max_lr: 0.1"), ContainsSubstring("must not be above max_lr: 0.5, 0.1"));
  CHECK_THAT(schedule("cyclic, gamma: 0.9"), ContainsSubstring("only mode exp_range uses this"));
  CHECK_THAT(schedule("cyclic, mode: exp_range"), ContainsSubstring("needs this below 1"));
  CHECK_THAT(schedule("cosine, eta_min: 1"), ContainsSubstring("must not be above optimizer.lr: 1, 0.001"));
  CHECK_THAT(schedule("multistep"), ContainsSubstring("multistep needs at least one"));
  CHECK_THAT(schedule("multistep, milestones: [3, 3]"), ContainsSubstring("must be in rising order"));
  CHECK_THAT(schedule("onecycle, cycle_momentum: false, max_momentum: 0.9"),
             ContainsSubstring("base_momentum and max_momentum need this to be true"));
  CHECK_THAT(schedule("onecycle, base_momentum: 0.97"), ContainsSubstring("must not be above max_momentum"));
  CHECK_THAT(schedule("constant, interval: epoch"), ContainsSubstring("changes neither by steps nor by epochs"));
  CHECK_THAT(schedule("onecycle, max_lr: -1"), ContainsSubstring("scheduler.max_lr"));
  CHECK_THAT(problem_of("optimizer: {momentum: 0}\nscheduler: {name: onecycle}"),
             ContainsSubstring("this optimizer has no momentum to move"));
  CHECK_THAT(problem_of("optimizer: {lr_scaling: linear, reference_batch: 8}\nscheduler: {name: onecycle, max_lr: 1}"),
             ContainsSubstring("optimizer.lr_scaling scales optimizer.lr, which this replaces"));
}

TEST_CASE("a schedule whose phases do not fit into the run is refused with the numbers") {
  Recipe recipe;
  recipe.scheduler.schedule = OneCycleSchedule{};
  recipe.train.max_steps = 3;
  CHECK_THROWS_WITH(make_plan(recipe, Machine{}), ContainsSubstring("0.3 of 3 counts leave no room for two phases"));
  recipe.scheduler.warmup_steps = 5;
  CHECK_THROWS_WITH(make_plan(recipe, Machine{}),
                    ContainsSubstring("the warm-up leaves nothing for onecycle: 5 of 3 steps"));
  recipe.scheduler = {};
  recipe.average = SwaConfig{.start_step = 4};
  CHECK_THROWS_WITH(make_plan(recipe, Machine{}), ContainsSubstring("must not be after the last step: 4, 3"));
}

TEST_CASE("options that would have no effect are refused") {
  CHECK_THAT(problem_of("data: {decode: scaled}"),
             ContainsSubstring("only image_folder, packed, tar and parquet decode files"));
  CHECK_THAT(problem_of("data: {cache: memory}"), ContainsSubstring("data.cache"));
  CHECK_THAT(problem_of("optimizations: {amp: {init_scale: 4}}"), ContainsSubstring("only float16 has a loss scale"));
  CHECK_THAT(problem_of("logging: {dump: {what: [outputs]}}"), ContainsSubstring("needs logging.dump.steps"));
  CHECK_THAT(problem_of("evaluation: {batch_size: 8}"), ContainsSubstring("nothing to evaluate on"));
}

TEST_CASE("global batch, accumulation and batch size that disagree are refused with the numbers") {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.data.batch_size = 16;
  recipe.data.global_batch_size = 64;
  CHECK(make_plan(recipe, Machine{}).data.accumulation == 4);
  recipe.train.gradient_accumulation_steps = 2;
  CHECK_THROWS_WITH(make_plan(recipe, Machine{}), ContainsSubstring("64, 1 × 2 × 16"));
  recipe.train.gradient_accumulation_steps.reset();
  recipe.data.global_batch_size = 100;
  CHECK_THROWS_WITH(make_plan(recipe, Machine{}), ContainsSubstring("such as 96"));
  recipe.data.global_batch_size.reset();
  recipe.device = "cuda";
  CHECK_THROWS_WITH(make_plan(recipe, Machine{}), ContainsSubstring("sees no GPU and no NVIDIA driver"));
  recipe.device = "cuda:3";
  CHECK_THROWS_WITH(make_plan(recipe, assume(Machine{}, "gpus=2").machine),
                    ContainsSubstring("asks for a GPU that does not exist"));
}

TEST_CASE("auto passes over a GPU for which there are no kernels, and says so; a recipe that names it is refused") {
  const Machine old = assume(Machine{}, "gpus=1,arch=sm_70").machine;
  Recipe recipe;
  recipe.device = "auto";
  const Plan plan = make_plan(recipe, old);
  CHECK(plan.device.is_cpu());
  CHECK_THAT(plan.device_reason, ContainsSubstring("too old"));
  REQUIRE(plan.notes.size() == 1);
  CHECK_THAT(plan.notes.front(), ContainsSubstring("this job uses the CPU"));
  recipe.device = "cuda";
  CHECK_THROWS_WITH(make_plan(recipe, old), ContainsSubstring("too old"));
}

TEST_CASE("a planned switch shows its requested options if they are not the defaults") {
  const auto requested = [](const std::string& amp) {
    return make_plan(load_text("optimizations: {amp: " + amp + "}\n").recipe, detect_machine())
        .switches.at(0)
        .requested;
  };
  CHECK(requested("true") == "true");
  CHECK(requested("{dtype: bfloat16}") == "true");
  CHECK(requested("{dtype: float16}").find("float16") != std::string::npos);
}

TEST_CASE("the length of a run is the first limit reached") {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.data.size = 100;
  recipe.data.batch_size = 10;
  CHECK(make_plan(recipe, Machine{}).steps == 10);
  recipe.train.epochs = 3;
  CHECK(make_plan(recipe, Machine{}).steps == 30);
  recipe.train.max_steps = 7;
  CHECK(make_plan(recipe, Machine{}).steps == 7);
  recipe.train.epochs = 1000000000;
  recipe.train.max_steps.reset();
  CHECK(make_plan(recipe, Machine{}).steps == 10000000000);
  recipe.train = {.max_time = Duration{5}};
  CHECK_FALSE(make_plan(recipe, Machine{}).steps.has_value());
  recipe.train = {.epochs = 3, .max_steps = 7};
  recipe.scheduler = {.schedule = LinearSchedule{.end = {.total_steps = 50}}};
  CHECK(make_plan(recipe, Machine{}).schedule_steps == 50);
}

TEST_CASE("a plan lists the model's operation slots that are not plain") {
  Recipe recipe = load_text("device: cpu\n").recipe;
  const auto slots = [&] { return plan_json(make_plan(recipe, Machine{})).at("slots"); };
  const auto plain = slots();
  CHECK_FALSE((plain.contains("convolution") || plain.contains("batch-norm") || plain.contains("head")));
  recipe.optimizations.fused_kernels = recipe.optimizations.winograd.on = true;
  const auto filled = slots();
  CHECK_THAT(filled.at("convolution").get<std::string>(), ContainsSubstring("(winograd)"));
  CHECK_THAT(filled.at("batch-norm").get<std::string>(), ContainsSubstring("(fused_kernels)"));
  CHECK_THAT(filled.at("head").get<std::string>(), ContainsSubstring("(fused_kernels)"));
}
