// What the configured transforms do to an image of a given size, as a list of resamplings; draws the random ones.
#pragma once

#include "data/image/resample.h"
#include "data/transform_config.h"

#include <optional>

namespace trainopt {

class Geometry {
 public:
  /// `first_place`: of the first of these in the whole list, where others come before it elsewhere. Throws UserError
  /// for a size below 1 or another parameter out of its range.
  explicit Geometry(std::vector<TransformConfig> transforms, size_t first_place = 0);

  /// Crops, flips and pads join the resize before them where that gives the same pixels, so there is nearly always one
  /// stage; at least one. Each stage's input is the one before's window. Draws depend on `sample_key` and the
  /// transform's place in the list alone. Throws BadSample if the image is too small for a random crop.
  std::vector<Stage> stages(ImageSize input, uint64_t sample_key) const;

  /// The size that comes out, nullopt if it varies with the sample. `input`: nullopt if that varies.
  std::optional<ImageSize> output_size(std::optional<ImageSize> input) const;

 private:
  std::vector<TransformConfig> transforms_;
  size_t first_place_;
};

/// Python's round(): halves go to the even neighbour.
int64_t round_half_even(double value);

}  // namespace trainopt
