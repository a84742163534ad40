// The transforms used in evaluation if the recipe names none.
#pragma once

#include "data/transform_config.h"

namespace trainopt {

/// The training transforms without random flips and crops. random_resized_crop: s becomes resize: round(s·256/224),
/// then center_crop: s (if s is not square, the resize uses its longer side).
std::vector<TransformConfig> evaluation_transforms(const std::vector<TransformConfig>& training);

}  // namespace trainopt
