// Crop, resize, flip, pad, normalise and lay out in one go over an image.
#pragma once

#include "data/image/image.h"
#include "data/image/normalization.h"
#include "data/image/resample_table.h"

namespace trainopt {

enum class PixelFormat {
  u8_hwc,
  f32_chw,  ///< one plane a channel
  f32_hwc   ///< interleaved: what a channels-last tensor holds
};

/// Contiguous memory for one image, such as its place in a batch.
struct Destination {
  PixelFormat format = PixelFormat::f32_chw;
  void* data = nullptr;
  int64_t height = 0, width = 0;
};

/// One resampling of an image, in the order crop to `source`, resize, cut to `valid`, pad with zeros and cut to
/// `window`, mirror.
struct Stage {
  Rect source;        ///< of the input image, inside it
  ImageSize resized;  ///< what `source` becomes
  Rect window;        ///< of the resized image: what comes out; may reach outside
  Rect valid;         ///< of the resized image, inside it: the window's pixels outside of it are zeros
  bool flip = false;  ///< mirrors the window left to right
};

/// The part of the input image that a stage's pixels depend on (inside `stage.source`; empty if they are all zeros).
Rect needed_input(const Stage& stage, ResampleTableCache& tables);

/// Pixels of the input image from (top, left) on; at least what needed_input() says.
struct InputRegion {
  ImageView view;
  int64_t top = 0, left = 0;
};

struct ResampleScratch {
  ResampleTableCache tables;
  std::vector<uint8_t> rows;        ///< ring of horizontally resampled rows
  std::vector<uint8_t> padded_row;  ///< a source row with room behind it
};

/// Writes the stage's window to `destination`, which has its size. Pillow's rounding: to 8 bits after the horizontal
/// pass and again after the vertical one. `normalization` is not used for u8_hwc.
void resample(const InputRegion& input, const Stage& stage, const Normalization& normalization,
              const Destination& destination, ResampleScratch& scratch);

/// The obvious twin of resample(), for tests: a pixel at a time, one pass after the other.
void resample_reference(const InputRegion& input, const Stage& stage, const Normalization& normalization,
                        const Destination& destination);

}  // namespace trainopt
