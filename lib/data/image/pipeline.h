// Transforms pixels, or the bytes of a file, into a sample's position in a batch.
#pragma once

#include "data/image/decode.h"
#include "data/image/geometry.h"
#include "data/image/jpeg.h"
#include "data/image/stage_timer.h"

#include <span>

namespace trainopt {

/// One thread's working memory; any pipeline may use it, one at a time.
struct PipelineScratch {
  ResampleScratch resample;
  ImageU8 decoded, intermediate[2];
  DecodeMemory::Hold kept;  ///< what `decoded` takes between images
  int64_t kept_bytes = 0;
  StageTimes times;  ///< added to by every run
};

/// Immutable; any number of threads may run the same pipeline concurrently.
class Pipeline {
 public:
  /// Throws UserError for parameters out of range, and if `normalize` appears twice or is not last.
  explicit Pipeline(const std::vector<TransformConfig>& transforms);

  /// The output size; nullopt if it varies with the sample. `input`: the input size, nullopt if it varies.
  std::optional<ImageSize> output_size(std::optional<ImageSize> input) const { return geometry_.output_size(input); }
  /// Applied to float destinations after scaling to [0, 1]; mean 0 and std 1 without a normalize.
  const Normalization& normalization() const { return normalization_; }

  /// Writes the transformed image to `destination`. `sample_key`: a mix of seed, epoch and sample that determines all
  /// random draws. Throws BadSample if the image is too small for a random crop or the result does not have the
  /// destination's size.
  void run(const ImageView& image, uint64_t sample_key, const Destination& destination, PipelineScratch& scratch) const;

  /// run() from a JPEG or PNG file, whose size it returns; only the part of a JPEG that the transforms need is decoded.
  /// Also throws BadSample for a bad file: with ReadTo::end for the same files whatever part is needed.
  ImageSize run_encoded(std::span<const uint8_t> file, const DecodeOptions& options, ReadTo to, uint64_t sample_key,
                        const Destination& destination, PipelineScratch& scratch) const;

 private:
  /// What is decoded of a file, and the transforms for it.
  struct Decoded {
    ImageSize file;
    InputRegion input;
    std::vector<Stage> stages;
  };
  /// `hold` receives what scratch.decoded takes of the memory.
  Decoded decode(std::span<const uint8_t> file, const DecodeOptions& options, ReadTo to, uint64_t sample_key,
                 PipelineScratch& scratch, DecodeMemory::Hold& hold) const;
  void run_stages(InputRegion input, const std::vector<Stage>& stages, const Destination& destination,
                  PipelineScratch& scratch) const;

  Geometry geometry_;
  Normalization normalization_;
};

}  // namespace trainopt
