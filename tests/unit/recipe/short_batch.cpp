#include "recipe/short_batch.h"

#include "recipe/make_plan.h"
#include "recipe/recipe_io.h"
#include "support/catch.h"

using namespace trainopt;

namespace short_batch_tests {

/// 33 images in batches of 8: the last batch of an epoch has one. At 32 pixels, the last layers of a resnet18 see one
/// value of a channel in each image, and at 64 pixels four.
Recipe recipe_with(std::vector<std::string> words) {
  words.insert(words.begin(), {"device=cpu", "data.size=33", "data.batch_size=8", "data.drop_last=false",
                               "data.dataset=synthetic", "data.image_size=32"});
  return load_recipe({.files = {}, .overrides = std::move(words)}, std::nullopt).recipe;
}
Plan plan_of(std::vector<std::string> words, int64_t ranks = 1) {
  return make_plan(recipe_with(std::move(words)), Machine{}, {.rank = 0, .ranks = ranks, .local_ranks = ranks});
}
std::string notes_of(const Plan& plan) {
  std::string all;
  for (const std::string& note : plan.notes) all += note + "\n";
  return all;
}

TEST_CASE("a batch in which batch-norm would see one value is refused, dropped or merged") {
  CHECK_THROWS_WITH(plan_of({}), Contains("train.short_batch: batch-norm needs more than one value of each channel") &&
                                     Contains("32 × 32 pixels") && Contains("merge joins it") &&
                                     Contains("33 samples, 8 a batch"));
  const Plan dropped = plan_of({"train.short_batch=drop"});
  CHECK(dropped.data.schedule().steps_per_epoch() == 4);
  CHECK(*dropped.steps == 4);
  CHECK_THAT(notes_of(dropped), Contains("leaves 1 sample of each epoch out"));
  const Plan merged = plan_of({"train.short_batch=merge", "train.epochs=3"});
  CHECK(merged.data.schedule().largest_items() == 9);
  CHECK(*merged.steps == 12);
  CHECK_THAT(notes_of(merged), Contains("the last batch of an epoch has 9 samples"));
  CHECK_THROWS_WITH(plan_of({"data.size=1", "train.short_batch=merge"}), Contains("the short batch is the only one"));
}

TEST_CASE("with batches of one sample, every step is refused") {
  for (const char* way : {"error", "drop", "merge"})
    CHECK_THROWS_WITH(plan_of({"data.batch_size=1", std::string("train.short_batch=") + way}),
                      Contains("data.batch_size: batch-norm needs more than one value"));
  CHECK_NOTHROW(plan_of({"data.batch_size=1", "data.image_size=64"}));
}

TEST_CASE("train.short_batch says where it has no effect") {
  const auto without_effect = [](std::vector<std::string> words, const std::string& why) {
    CHECK_NOTHROW(plan_of(words));
    words.push_back("train.short_batch=drop");
    CHECK_THAT(notes_of(plan_of(words)), Contains("train.short_batch has no effect here: " + why));
  };
  without_effect({"data.image_size=64"}, "every batch-norm has 4 or more values of a sample");
  without_effect({"model.name=mlp"}, "the mlp has no batch-norm");
  without_effect({"data.drop_last=true"}, "no batch of an epoch is short");
  without_effect({"data.size=34"}, "the last batch of an epoch is large enough");
}

TEST_CASE("a run that ends before the last batch of an epoch is planned, and its comparisons leave that batch out") {
  const Plan plan = plan_of({"train.max_steps=4"});
  CHECK(*plan.steps == 4);
  CHECK(plan.data.last_batch == LastBatch::drop);
  CHECK_THROWS_WITH(plan_of({"train.max_steps=5"}), Contains("train.short_batch"));
}

TEST_CASE("several ranks share a short batch, or compute its statistics together") {
  const std::vector<std::string> five{"data.size=21", "data.batch_size=4"};  // 4 samples and one
  CHECK_THROWS_WITH(plan_of(five, 2), Contains("5 samples for 2 ranks; merge shares it evenly") &&
                                          Contains("and parallel.sync_batch_norm: true computes together"));
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), five.begin(), five.end());
    return plan_of(std::move(more), 2);
  };
  CHECK(with({"train.short_batch=merge"}).data.schedule().at(2, 0).items == 3);
  CHECK(with({"train.short_batch=drop"}).data.schedule().steps_per_epoch() == 2);
  CHECK(with({"parallel.sync_batch_norm=true"}).data.schedule().steps_per_epoch() == 3);
  CHECK_THROWS_WITH(plan_of({"data.size=7", "data.batch_size=2", "train.short_batch=merge"}, 2),
                    Contains("3 samples for 2 ranks; drop leaves it out"));
}

TEST_CASE("ranks without a sample are refused for any model, unless the batch is dropped or shared") {
  const std::vector<std::string> mlp{"model.name=mlp", "data.size=18", "data.batch_size=8"};
  CHECK_THROWS_WITH(plan_of(mlp, 2),
                    Contains("some of 2 ranks would have no sample") &&
                        Contains("merge shares it evenly, drop leaves it out: 18 samples, 16 a batch"));
  const auto with = [&](const std::string& word) {
    std::vector<std::string> words = mlp;
    words.push_back(word);
    return plan_of(words, 2).data.schedule();
  };
  CHECK(with("train.short_batch=drop").steps_per_epoch() == 1);
  CHECK(with("train.short_batch=merge").at(1, 0).items == 1);
  for (const char* way : {"train.short_batch=drop", "parallel.sync_batch_norm=true"}) {
    std::vector<std::string> resnet{"data.size=17", way};
    if (std::string(way).starts_with("train"))
      CHECK(plan_of(resnet, 2).data.schedule().steps_per_epoch() == 1);
    else
      CHECK_THROWS_WITH(plan_of(resnet, 2), Contains("some of 2 ranks would have no sample"));
  }
}

}  // namespace short_batch_tests
