#include "support.h"

using namespace trainopt;
using namespace trainopt::config_test;

namespace {

std::vector<TransformConfig> transforms_of(const std::string& list) {
  return load_text("data: {transforms: " + list + "}\n").data.transforms;
}
std::string transform_error(const std::string& item) {
  const std::string error = error_of("data: {transforms: [" + item + "]}\n");
  const size_t message = error.find("data.transforms");
  return message == std::string::npos ? error : error.substr(message);
}

}  // namespace

TEST_CASE("each transform is read in its short and its long form") {
  const auto t = transforms_of(
      "[{resize: 256}, {resize: [32, 48]}, {center_crop: {size: 224}}, {random_crop: {size: 32, padding: 4}}, "
      "{random_crop: [8, 9]}, "
      "{random_resized_crop: 224}, {random_resized_crop: {size: [10, 20], scale: [0.5, 1], ratio: [1, 2]}}, "
      "random_horizontal_flip, "
      "{random_horizontal_flip: 0.25}, {random_horizontal_flip: {p: 1}}, {normalize: {mean: 0.5, std: [0.1, 0.2, "
      "0.3]}}]");
  REQUIRE(t.size() == 11);
  CHECK(std::get<ResizeConfig>(t[0]).shorter_side == 256);
  CHECK_FALSE(std::get<ResizeConfig>(t[1]).shorter_side.has_value());
  CHECK(std::get<ResizeConfig>(t[1]).exact == std::pair<int64_t, int64_t>(32, 48));
  CHECK(std::get<CenterCropConfig>(t[2]).width == 224);
  CHECK(std::get<RandomCropConfig>(t[3]).padding == 4);
  CHECK(std::get<RandomCropConfig>(t[4]).height == 8);
  CHECK(std::get<RandomCropConfig>(t[4]).width == 9);
  CHECK(std::get<RandomResizedCropConfig>(t[5]).scale == std::array{0.08, 1.0});
  CHECK(std::get<RandomResizedCropConfig>(t[6]).height == 10);
  CHECK(std::get<RandomResizedCropConfig>(t[6]).ratio == std::array{1.0, 2.0});
  CHECK(std::get<RandomHorizontalFlipConfig>(t[7]).p == 0.5);
  CHECK(std::get<RandomHorizontalFlipConfig>(t[8]).p == 0.25);
  CHECK(std::get<RandomHorizontalFlipConfig>(t[9]).p == 1);
  CHECK(std::get<NormalizeConfig>(t[10]).mean == std::array{0.5, 0.5, 0.5});
  CHECK(std::get<NormalizeConfig>(t[10]).std == std::array{0.1, 0.2, 0.3});
}

TEST_CASE("written transforms read back the same") {
  const std::string list =
      "[{resize: [224, 224]}, {resize: 224}, {center_crop: [3, 4]}, {random_crop: 7}, {random_resized_crop: 9}, "
      "random_horizontal_flip, "
      "{normalize: {mean: [0.485, 0.456, 0.406], std: 0.1}}]";
  Recipe recipe;
  recipe.data.transforms = transforms_of(list);
  recipe.evaluation.transforms = recipe.data.transforms;
  const std::string text = to_yaml(recipe);
  const Recipe back = load_text(text);
  CHECK(to_yaml(back) == text);
  REQUIRE(back.data.transforms.size() == 7);
  CHECK_FALSE(std::get<ResizeConfig>(back.data.transforms[0]).shorter_side.has_value());
  CHECK(std::get<ResizeConfig>(back.data.transforms[1]).shorter_side == 224);
  CHECK(std::get<RandomResizedCropConfig>(back.data.transforms[4]).ratio == std::array{3.0 / 4, 4.0 / 3});
  REQUIRE(back.evaluation.transforms.has_value());
  CHECK(std::get<NormalizeConfig>(back.evaluation.transforms->at(6)).mean == std::array{0.485, 0.456, 0.406});
}

TEST_CASE("an error names the transform and the reason") {
  CHECK(transform_error("{resise: 4}") ==
        "data.transforms[0]: must be one of resize, center_crop, random_crop, random_resized_crop, "
        "random_horizontal_flip, normalize: "
        "\"resise\" (did you mean 'resize'?)");
  CHECK(transform_error("{resize: 0}") == "data.transforms[0].resize.size: must be between 1 and 16384: 0");
  CHECK(transform_error("{resize: [1, 2, 3]}") ==
        "data.transforms[0].resize.size: must be a list of 2 × whole number: a list of 3");
  CHECK(transform_error("resize") == "data.transforms[0].resize: resize needs size");
  CHECK(transform_error("{normalize: {mean: 0.5}}") == "data.transforms[0].normalize: normalize needs std");
  CHECK(transform_error("{normalize: {mean: 0.5, std: 0}}") == "data.transforms[0].normalize.std: must be above 0: 0");
  CHECK(transform_error("{random_horizontal_flip: 1.5}") ==
        "data.transforms[0].random_horizontal_flip.p: must be between 0 and 1: 1.5");
  CHECK(transform_error("{random_crop: {size: 4, paddin: 1}}") ==
        "data.transforms[0].random_crop.paddin: unknown key (did you mean 'padding'?)");
  CHECK(transform_error("{random_resized_crop: {size: 4, scale: [1, 0.5]}}") ==
        "data.transforms[0].random_resized_crop: scale must be [min, max]: [1, 0.5]");
  CHECK(transform_error("{resize: 4, center_crop: 4}") ==
        "data.transforms[0]: must be one transform, such as 'resize: 224': a map of 2 keys");
}
