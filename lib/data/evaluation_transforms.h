// What evaluation does to an image when the recipe does not say.
#pragma once

#include "data/transform_config.h"

namespace trainopt {

/// The training transforms with random flips and crops left out; random_resized_crop: s becomes resize
/// round(s·256/224), center_crop s (with the longer side of s where it is not square).
std::vector<TransformConfig> evaluation_transforms(const std::vector<TransformConfig>& training);

}  // namespace trainopt
