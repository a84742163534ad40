// The transforms in `data.transforms`, with torchvision 0.26's names, parameters and defaults.
#pragma once

#include "config/form.h"

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

namespace trainopt {

struct ResizeConfig {  ///< resize: 224 (shorter side) or [height, width]
  std::optional<int64_t> shorter_side;
  std::pair<int64_t, int64_t> exact{0, 0};  ///< height, width; used when shorter_side is null
};
struct CenterCropConfig {
  int64_t height = 0, width = 0;
};  ///< center_crop: 224 or [h, w]
struct RandomCropConfig {
  int64_t height = 0, width = 0, padding = 0;
};                                ///< random_crop: {size, padding}, or a size
struct RandomResizedCropConfig {  ///< random_resized_crop: 224 or {size, scale, ratio}
  int64_t height = 0, width = 0;
  std::array<double, 2> scale{0.08, 1.0};
  std::array<double, 2> ratio{3.0 / 4.0, 4.0 / 3.0};
};
struct RandomHorizontalFlipConfig {
  double p = 0.5;
};  ///< random_horizontal_flip, or with p
struct NormalizeConfig {
  std::array<double, 3> mean{0, 0, 0}, std{1, 1, 1};
};  ///< normalize: {mean, std}, each one number or a list of three

using TransformConfig = std::variant<ResizeConfig, CenterCropConfig, RandomCropConfig, RandomResizedCropConfig,
                                     RandomHorizontalFlipConfig, NormalizeConfig>;

// The recipe syntax of an item of `data.transforms`: a name, or a map from one name to its parameter or parameters.

template <>
struct Form<TransformConfig> {
  static std::string type_text();
  static Json schema(const Bounds& bounds);
  static std::optional<TransformConfig> read(const Value& value, const Location& location);
  static Value write(const TransformConfig& transform);
};

}  // namespace trainopt
