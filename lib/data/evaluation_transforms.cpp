#include "data/evaluation_transforms.h"

#include <algorithm>
#include <cmath>

namespace trainopt {

std::vector<TransformConfig> evaluation_transforms(const std::vector<TransformConfig>& training) {
  std::vector<TransformConfig> transforms;
  for (const auto& transform : training) {
    if (std::holds_alternative<RandomCropConfig>(transform) ||
        std::holds_alternative<RandomHorizontalFlipConfig>(transform))
      continue;
    if (const auto* crop = std::get_if<RandomResizedCropConfig>(&transform)) {
      const double side = static_cast<double>(std::max(crop->height, crop->width)) * 256 / 224;
      transforms.emplace_back(ResizeConfig{.shorter_side = std::lround(side)});
      transforms.emplace_back(CenterCropConfig{crop->height, crop->width});
    } else {
      transforms.push_back(transform);
    }
  }
  return transforms;
}

}  // namespace trainopt
