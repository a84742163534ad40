#include "base/error.h"
#include "data/image/geometry.h"
#include "support/catch.h"

#include <cmath>
#include <limits>

using namespace trainopt;

namespace {

Stage only_stage(const std::vector<TransformConfig>& transforms, ImageSize input, uint64_t key = 0) {
  const std::vector<Stage> stages = Geometry(transforms).stages(input, key);
  REQUIRE(stages.size() == 1);
  return stages[0];
}

}  // namespace

TEST_CASE("center_crop rounds halves to even and puts the odd padding last") {
  // int(round((image - crop) / 2.0)) in Python
  for (const auto& [image, crop, begin] :
       {std::tuple{10, 7, 2}, {11, 8, 2}, {12, 7, 2}, {13, 8, 2}, {15, 8, 4}, {8, 8, 0}, {6, 11, -2}, {5, 9, -2}}) {
    const Stage stage = only_stage({CenterCropConfig{crop, crop}}, {image, 20});
    CHECK(stage.window.top == begin);
    CHECK(stage.window.height == crop);
  }
}

TEST_CASE("resize to the shorter side cuts the longer one") {
  CHECK(Geometry({ResizeConfig{256}}).output_size(ImageSize{375, 500}) == ImageSize{256, 341});
  CHECK(Geometry({ResizeConfig{256}}).output_size(ImageSize{500, 375}) == ImageSize{341, 256});
  CHECK(Geometry({ResizeConfig{64}}).output_size(ImageSize{32, 32}) == ImageSize{64, 64});
  CHECK_THROWS_AS(Geometry({ResizeConfig{224}}).stages({1, 16384}, 0), BadSample);
  CHECK(only_stage({ResizeConfig{256}}, {375, 500}).resized == ImageSize{256, 341});
}

TEST_CASE("output sizes are known once something fixes them") {
  CHECK_FALSE(Geometry({ResizeConfig{256}}).output_size(std::nullopt));
  CHECK_FALSE(Geometry({RandomHorizontalFlipConfig{}}).output_size(std::nullopt));
  CHECK(Geometry({ResizeConfig{256}, CenterCropConfig{224, 200}}).output_size(std::nullopt) == ImageSize{224, 200});
  CHECK(Geometry({ResizeConfig{std::nullopt, {10, 20}}}).output_size(std::nullopt) == ImageSize{10, 20});
  CHECK(Geometry({RandomCropConfig{32, 32, 4}}).output_size(std::nullopt) == ImageSize{32, 32});
  CHECK(Geometry({RandomResizedCropConfig{7, 8}}).output_size(std::nullopt) == ImageSize{7, 8});
  CHECK(Geometry(std::vector<TransformConfig>{}).output_size(ImageSize{3, 4}) == ImageSize{3, 4});
}

TEST_CASE("random_resized_crop keeps to scale and ratio and spreads over them") {
  const Geometry geometry({RandomResizedCropConfig{224, 224}});
  double area = 0, log_ratio = 0;
  int64_t touches_left = 0;
  constexpr int kDraws = 20000;
  for (uint64_t key = 0; key < kDraws; ++key) {
    const Stage stage = geometry.stages({375, 500}, key)[0];
    // A crop that happens to have the size wanted is not resized at all.
    const Rect& crop = stage.resized == ImageSize{375, 500} ? stage.window : stage.source;
    REQUIRE((crop.top >= 0 && crop.left >= 0 && crop.bottom() <= 375 && crop.right() <= 500));
    REQUIRE((stage.window.height == 224 && stage.window.width == 224));
    const double share = static_cast<double>(crop.height * crop.width) / (375.0 * 500.0);
    const double ratio = static_cast<double>(crop.width) / static_cast<double>(crop.height);
    REQUIRE((share > 0.079 && share <= 1.0));
    REQUIRE((ratio > 0.74 && ratio < 1.35));
    area += share;
    log_ratio += std::log(ratio);
    touches_left += crop.left == 0;
  }
  // torchvision's RandomResizedCrop.get_params, the same image, 200,000 draws: mean share 0.4328, mean log ratio
  // 0.0303.
  CHECK(area / kDraws == Approx(0.4328).margin(0.006));
  CHECK(log_ratio / kDraws == Approx(0.0303).margin(0.006));
  CHECK(touches_left > 0);
}

TEST_CASE("random_resized_crop falls back to the largest central crop") {
  // No scale fits a picture this long, so all ten tries fail: torchvision takes height × 4/3 from the middle.
  const RandomResizedCropConfig config{8, 8, {0.9, 1.0}, {3.0 / 4.0, 4.0 / 3.0}};
  CHECK(only_stage({config}, {30, 1000}).source == Rect{0, 480, 30, 40});
  CHECK(only_stage({config}, {1000, 30}).source == Rect{480, 0, 40, 30});
  CHECK(only_stage({RandomResizedCropConfig{8, 8, {4.0, 5.0}, {0.5, 2.0}}}, {31, 30}).source == Rect{0, 0, 31, 30});
}

TEST_CASE("random_crop draws every place and pads") {
  const Geometry geometry({RandomCropConfig{32, 32, 4}});
  std::vector<int> tops(9), lefts(9);
  for (uint64_t key = 0; key < 9000; ++key) {
    const Stage stage = geometry.stages({32, 32}, key)[0];
    ++tops.at(static_cast<size_t>(stage.window.top + 4));
    ++lefts.at(static_cast<size_t>(stage.window.left + 4));
  }
  for (int i = 0; i < 9; ++i) {
    CHECK(std::abs(tops[i] - 1000) < 150);
    CHECK(std::abs(lefts[i] - 1000) < 150);
  }
  CHECK_THROWS_AS(Geometry({RandomCropConfig{33, 10, 0}}).stages({32, 32}, 0), BadSample);
  CHECK_NOTHROW(Geometry({RandomCropConfig{34, 10, 1}}).stages({32, 32}, 0));
}

TEST_CASE("flips follow their probability and the sample's key") {
  const std::vector<TransformConfig> transforms{RandomHorizontalFlipConfig{0.25}};
  int flips = 0;
  for (uint64_t key = 0; key < 8000; ++key) {
    const bool flip = only_stage(transforms, {4, 4}, key).flip;
    CHECK(flip == only_stage(transforms, {4, 4}, key).flip);
    flips += flip;
  }
  CHECK(std::abs(flips - 2000) < 200);
  CHECK_FALSE(only_stage({RandomHorizontalFlipConfig{0.0}}, {4, 4}).flip);
  CHECK(only_stage({RandomHorizontalFlipConfig{1.0}}, {4, 4}).flip);
}

TEST_CASE("a draw depends on its place in the list only") {
  const RandomCropConfig crop{10, 10, 0};
  const Rect alone = only_stage({RandomHorizontalFlipConfig{0.0}, crop}, {40, 40}, 7).window;
  CHECK(only_stage({CenterCropConfig{40, 40}, crop}, {40, 40}, 7).window == alone);
}

TEST_CASE("parameters out of range are the user's error") {
  CHECK_THROWS_AS(Geometry({ResizeConfig{0}}), UserError);
  CHECK_THROWS_AS(Geometry({ResizeConfig{std::nullopt, {0, 5}}}), UserError);
  CHECK_THROWS_AS(Geometry({CenterCropConfig{-1, 3}}), UserError);
  CHECK_THROWS_AS(Geometry({RandomCropConfig{3, 3, -1}}), UserError);
  CHECK_THROWS_AS(Geometry({RandomResizedCropConfig{8, 8, {1.0, 0.5}}}), UserError);
  CHECK_THROWS_AS(Geometry({RandomResizedCropConfig{8, 8, {0.1, 1.0}, {0.0, 1.0}}}), UserError);
  CHECK_THROWS_AS(Geometry({RandomHorizontalFlipConfig{1.5}}), UserError);
  CHECK_THROWS_AS(Geometry({RandomHorizontalFlipConfig{std::numeric_limits<double>::quiet_NaN()}}), UserError);
}
