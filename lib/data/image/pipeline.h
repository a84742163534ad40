// The whole way of a sample from pixels, or a file's bytes, to its place in a batch.
#pragma once

#include "data/image/geometry.h"

#include <span>

namespace trainopt {

enum class DecodeSize {
  full,    ///< Pillow's pixels
  reduced  ///< a JPEG that will be made at most 1/2, 1/4 or 1/8 its size is decoded at that size: faster, other numbers
};

/// One thread's memory; any pipeline may use it, one at a time.
struct PipelineScratch {
  ResampleScratch resample;
  ImageU8 decoded, between[2];
};

/// Immutable: any number of threads may run one at the same time.
class Pipeline {
 public:
  /// Throws UserError for parameters out of range and for `normalize` given twice or not last.
  explicit Pipeline(const std::vector<TransformConfig>& transforms);

  /// The size that comes out, nullopt if it varies with the sample. `input`: nullopt if that varies.
  std::optional<ImageSize> output_size(std::optional<ImageSize> input) const { return geometry_.output_size(input); }
  /// What float destinations get after scaling to [0, 1]; mean 0 and std 1 without a normalize.
  const Normalization& normalization() const { return normalization_; }

  /// Writes the transformed image to `destination`. `sample_key`: a mix of seed, epoch and sample; all randomness
  /// follows from it. Throws BadSample if the image is too small for a random crop or does not come out in the
  /// destination's size.
  void run(const ImageView& image, uint64_t sample_key, const Destination& destination, PipelineScratch& scratch) const;

  /// The same from a JPEG or PNG file; a JPEG is decoded where the transforms look only. Throws BadSample for a bad
  /// file too.
  void run_encoded(std::span<const uint8_t> file, DecodeSize decode, uint64_t sample_key,
                   const Destination& destination, PipelineScratch& scratch) const;

 private:
  void run_stages(InputRegion input, const std::vector<Stage>& stages, const Destination& destination,
                  PipelineScratch& scratch) const;

  Geometry geometry_;
  Normalization normalization_;
};

}  // namespace trainopt
