// Turns the configured transforms into a list of resampling stages for an image of a given size; draws the random ones.
#pragma once

#include "data/image/resample.h"
#include "data/transform_config.h"

#include <optional>

namespace trainopt {

class Geometry {
 public:
  /// `first_index`: the index of the first of these in the recipe's list, if earlier transforms run elsewhere. Throws
  /// UserError for a size below 1 or another parameter out of range.
  explicit Geometry(std::vector<TransformConfig> transforms, size_t first_index = 0);

  /// Crops, flips and pads merge into the resize before them if that gives the same pixels, so there is nearly always
  /// one stage, and always at least one. A stage's input is the previous stage's window. Draws depend only on
  /// `sample_key` and the transform's index in the list. Throws BadSample if the image is too small for a random crop.
  std::vector<Stage> stages(ImageSize input, uint64_t sample_key) const;

  /// The output size; nullopt if it varies with the sample. `input`: the input size, nullopt if it varies.
  std::optional<ImageSize> output_size(std::optional<ImageSize> input) const;

 private:
  std::vector<TransformConfig> transforms_;
  size_t first_index_;
};

}  // namespace trainopt
