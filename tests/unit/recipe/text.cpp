// The checks of recipes for text.
#include "recipe/validate.h"
#include "support/catch.h"

#include <functional>

using namespace trainopt;

namespace {

/// The problems of a recipe for a language model after `change`, one a line.
std::string problems(const std::function<void(Recipe&)>& change, DatasetKind kind = DatasetKind::tokens) {
  Recipe recipe;
  recipe.model.name = ModelKind::gpt2;
  recipe.data.dataset = kind;
  if (kind != DatasetKind::synthetic) recipe.data.path = "text";
  change(recipe);
  std::string lines;
  for (const auto& [key, message] : validate(recipe)) lines += key + ": " + message + "\n";
  return lines;
}

const auto nothing = [](Recipe&) {};

}  // namespace

TEST_CASE("a language model takes text, and other models images") {
  for (const auto kind : {DatasetKind::tokens, DatasetKind::documents, DatasetKind::synthetic})
    CHECK(problems(nothing, kind) == "");
  CHECK(problems([](Recipe& r) { r.data.path.reset(); }, DatasetKind::fake_cifar10) ==
        "data.dataset: gpt2 reads text (tokens and documents) or synthetic, not fake_cifar10\n");
  CHECK(problems([](Recipe& r) { r.model.name = ModelKind::mlp; }) ==
        "data.dataset: tokens is text, which the mlp cannot read; use a language model or images\n");
  CHECK(problems([](Recipe& r) { r.data.path.reset(); }) ==
        "data.path: tokens needs a file or a folder; name it with this key\n");
}

TEST_CASE("keys that are about images are refused for text, one by one") {
  const std::string about_images = ": is about images, and this data is text; remove this key\n";
  for (const auto kind : {DatasetKind::tokens, DatasetKind::documents, DatasetKind::synthetic}) {
    CHECK(problems([](Recipe& r) { r.data.image_size = 8; }, kind) == "data.image_size" + about_images);
    CHECK(problems([](Recipe& r) { r.data.transforms = {ResizeConfig{8}}; }, kind) == "data.transforms" + about_images);
    CHECK(problems([](Recipe& r) { r.data.decode = DecodeKind::scaled; }, kind) == "data.decode" + about_images);
    for (const auto cache : {CacheKind::memory, CacheKind::device})
      CHECK(problems([=](Recipe& r) { r.data.cache.kind = cache; }, kind) == "data.cache" + about_images);
    CHECK_THAT(problems([](Recipe& r) { r.data.on_bad_sample = OnBadSample::substitute; }, kind),
               ContainsSubstring("data.on_bad_sample: is about images"));
  }
  CHECK(problems([](Recipe& r) { r.evaluation.path = "val", r.evaluation.transforms.emplace(); }) ==
        "evaluation.transforms" + about_images);
  CHECK_THAT(problems([](Recipe& r) { r.data.size = 5; }), ContainsSubstring("data.size: only fake_cifar10"));
}

TEST_CASE("keys that are about text are refused where they would have no effect") {
  CHECK(problems([](Recipe& r) { r.data.padding = Padding::max; }) ==
        "data.padding: only documents differ in length; remove this key\n");
  for (const auto kind : {DatasetKind::tokens, DatasetKind::synthetic})
    CHECK_THAT(problems([](Recipe& r) { r.data.warmup_largest = true; }, kind),
               ContainsSubstring("data.warmup_largest: has no effect where all batches have one shape"));
  for (const auto padding : {Padding::longest, Padding::bucket, Padding::max}) {
    const std::string found =
        problems([=](Recipe& r) { r.data.padding = padding, r.data.warmup_largest = true; }, DatasetKind::documents);
    CHECK(found.empty() == (padding != Padding::max));
  }
  CHECK(problems([](Recipe& r) { r.data.token_bits = 32; }) == "");
  CHECK(problems([](Recipe& r) { r.data.token_bits = 24; }) == "data.token_bits: must be 16 or 32: 24\n");
  CHECK_THAT(problems([](Recipe& r) { r.data.token_bits = 16; }, DatasetKind::synthetic),
             ContainsSubstring("data.token_bits: only tokens and documents"));
  CHECK(problems([](Recipe& r) { r.evaluation.every_n_steps = 5; }) ==
        "evaluation.every_n_steps: tokens needs evaluation.path for this\n");
}
