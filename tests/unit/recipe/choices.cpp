// What a plan chooses where the recipe leaves it open: loader threads, and the learning rate of a larger batch.
#include "recipe/choose_workers.h"
#include "recipe/make_plan.h"
#include "recipe/plan_text.h"
#include "recipe/recipe_io.h"
#include "support/catch.h"
#include "train/optimizer/optimizer.h"

#include <set>

using namespace trainopt;

namespace {

const Machine kMachine{.cpu = "test", .cores = 2};

Recipe recipe_with(const Words& words, int64_t ranks = 1) {
  Words all{"data.dataset=fake_cifar10",
            "data.size=256",
            "data.batch_size=8",
            "model.name=mlp",
            "device=cpu",
            "data.transforms=[{resize: 8}, {normalize: {mean: 0.5, std: 0.5}}]"};
  all.insert(all.end(), words.begin(), words.end());
  const auto recipe = with_words(Recipe{}, all, ranks);
  REQUIRE(recipe);
  return *recipe;
}

}  // namespace

TEST_CASE("the fewest threads near the best rate are chosen") {
  CHECK(worker_candidates(1) == std::vector<int64_t>{1});
  CHECK(worker_candidates(6) == std::vector<int64_t>{1, 2, 4, 6});
  CHECK(worker_candidates(8) == std::vector<int64_t>{1, 2, 4, 8});
  const auto chosen = [](std::vector<WorkerRate> rates) { return fewest_near_best(rates); };
  CHECK(chosen({{1, 100}, {2, 190}, {4, 195}}) == 2);
  CHECK(chosen({{1, 100}, {2, 190}, {4, 300}}) == 4);
  CHECK(chosen({{1, 100}, {2, 60}}) == 1);
}

TEST_CASE("data.num_workers: auto is measured, unless nothing is loaded") {
  std::vector<std::string> notes;
  const Recipe open = recipe_with({"data.num_workers=auto"});
  const Recipe measured = with_workers_chosen(open, kMachine, {}, notes);
  const auto& count = measured.data.num_workers.value;
  REQUIRE(count);
  CHECK((*count == 1 || *count == 2));
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], ContainsSubstring(fmt::format("auto chose {};", *count)) && ContainsSubstring(" with 1, "));

  notes.clear();
  const Recipe synthetic = recipe_with({"data.num_workers=auto", "data.dataset=synthetic", "data.transforms=null"});
  CHECK(with_workers_chosen(synthetic, kMachine, {}, notes).data.num_workers == 0);
  CHECK_THAT(notes.at(0), ContainsSubstring("synthetic"));
  const Recipe cached = recipe_with({"data.num_workers=auto", "data.cache=device"});
  CHECK(with_workers_chosen(cached, kMachine, {}, notes).data.num_workers == 2);
  notes.clear();
  CHECK(with_workers_chosen(recipe_with({"data.num_workers=7"}), kMachine, {}, notes).data.num_workers == 7);
  CHECK(notes.empty());
}

TEST_CASE("a plan of data.num_workers: auto says that the run measures") {
  const Plan plan = make_plan(recipe_with({"data.num_workers=auto"}), kMachine);
  CHECK(plan.loader.num_workers == 2);
  const auto workers = std::ranges::find(plan.switches, "num_workers", &PlannedSwitch::name);
  REQUIRE(workers != plan.switches.end());
  CHECK(workers->requested == "auto");
  CHECK(workers->outcome.text == "at most 2 loader threads; the run measures how many load fastest");
}

TEST_CASE("the learning rate follows the samples of all ranks and micro-batches") {
  const Words words{"optimizer.name=sgd", "optimizer.lr=0.5", "optimizer.lr_scaling=linear",
                    "optimizer.reference_batch=8", "train.gradient_accumulation_steps=2"};
  const Plan plan =
      make_plan(recipe_with(words, 2), kMachine, {.rank = 1, .ranks = 2, .local_rank = 1, .local_ranks = 2});
  CHECK(base_learning_rate(plan.optimizer_config) == 2.0);
  CHECK_THAT(plan_text(plan), ContainsSubstring("lr × 4 for 32 samples per step instead of 8 (linear)"));
  const auto sudden = [](const Plan& each) {
    return std::ranges::any_of(each.notes, [](const std::string& note) { return note.find("gradually") != note.npos; });
  };
  CHECK(sudden(plan));
  const Words warm{"optimizer.name=sgd", "optimizer.lr_scaling=linear", "optimizer.reference_batch=2",
                   "scheduler.warmup_steps=4"};
  CHECK_FALSE(sudden(make_plan(recipe_with(warm), kMachine)));
}

TEST_CASE("a schedule's lowest rate is compared with the scaled one") {
  const auto plan_of = [](double rate, int64_t reference_batch, Words schedule) {
    schedule.insert(schedule.end(), {fmt::format("optimizer.lr={}", rate), "optimizer.lr_scaling=linear",
                                     fmt::format("optimizer.reference_batch={}", reference_batch)});
    return make_plan(recipe_with(schedule), kMachine);
  };
  const Words cosine{"scheduler.name=cosine", "scheduler.eta_min=0.01"},
      cyclic{"scheduler.name=cyclic", "scheduler.base_lr=0.01"};
  CHECK_THROWS_WITH(plan_of(0.125, 1024, cosine),
                    ContainsSubstring("scheduler.eta_min: must not be above optimizer.lr, as lr_scaling scales it: "
                                      "0.01, 0.0009765625"));
  CHECK_THROWS_WITH(plan_of(0.125, 1024, cyclic),
                    ContainsSubstring("scheduler.base_lr: must not be above optimizer.lr, as lr_scaling scales it, "
                                      "the highest rate: 0.01, 0.0009765625"));
  for (const Words& schedule : {cosine, cyclic}) {
    CHECK_NOTHROW(plan_of(0.125, 64, schedule));
    CHECK_NOTHROW(plan_of(0.005, 1, schedule));  // above the recipe's lr, not above what it is scaled to
  }
}

TEST_CASE("the plan shows the scaled rates of groups and of Muon's AdamW, and scales them once") {
  const auto plan_of = [](Words words) {
    words.insert(words.end(), {"optimizer.lr=0.5", "optimizer.lr_scaling=linear", "optimizer.reference_batch=2"});
    return make_plan(recipe_with(words), kMachine);
  };
  const Plan groups = plan_of({"optimizer.groups=[{parameters: [bias], lr: 0.25}]"});
  CHECK_THAT(plan_text(groups), ContainsSubstring("lr 2, momentum") && ContainsSubstring("bias: lr 1"));
  const Plan muon = plan_of({"optimizer.name=muon", "optimizer.adamw_lr=0.125"});
  CHECK_THAT(plan_text(muon), ContainsSubstring("lr 2, momentum") && ContainsSubstring("AdamW with lr 0.5 for"));
  const auto rates = [](const Plan& plan) {
    std::set<double> all;
    for (const auto& [name, settings] : plan.parameter_settings) all.insert(settings.rate);
    return all;
  };
  CHECK(rates(groups) == std::set<double>{0.5, 1});
  CHECK(rates(muon) == std::set<double>{0.25, 1});
}

TEST_CASE("lr_scaling and reference_batch go together") {
  CHECK_FALSE(with_words(Recipe{}, {"optimizer.lr_scaling=sqrt"}, 1));
  CHECK_FALSE(with_words(Recipe{}, {"optimizer.reference_batch=8"}, 1));
  CHECK(with_words(Recipe{}, {"optimizer.reference_batch=8", "optimizer.lr_scaling=sqrt"}, 1));
}
