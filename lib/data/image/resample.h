// Crops, resizes, flips, pads, normalises and lays out an image in one pass.
#pragma once

#include "data/image/image.h"
#include "data/image/normalization.h"
#include "data/image/resample_table.h"

namespace trainopt {

enum class PixelFormat {
  u8_hwc,
  f32_chw,  ///< one plane per channel
  f32_hwc   ///< interleaved, the layout of a channels-last tensor
};

/// Contiguous memory for one image, such as its position in a batch.
struct Destination {
  PixelFormat format = PixelFormat::f32_chw;
  void* data = nullptr;
  int64_t height = 0, width = 0;
};

/// One resampling of an image. In this order: crop to `source`, resize, crop to `valid`, pad with zeros and crop to
/// `window`, mirror.
struct Stage {
  Rect source;        ///< in the input image, inside it
  ImageSize resized;  ///< size of `source` after the resize
  Rect window;        ///< in the resized image: the output; may extend outside it
  Rect valid;         ///< in the resized image, inside it; the window's pixels outside `valid` are zeros
  bool flip = false;  ///< mirrors the window left to right
};

/// The part of the input image that the stage reads (inside `stage.source`; empty if its output is all zeros).
Rect needed_input(const Stage& stage, ResampleTableCache& tables);

/// Pixels of the input image from (top, left) on; must cover needed_input().
struct InputRegion {
  ImageView view;
  int64_t top = 0, left = 0;
};

struct ResampleScratch {
  ResampleTableCache tables;
  std::vector<uint8_t> rows;        ///< ring of horizontally resampled rows
  std::vector<uint8_t> padded_row;  ///< copy of a source row with padding after it
};

/// Writes the stage's window to `destination`, which must have its size. Rounds as Pillow does: to 8 bits after the
/// horizontal pass and again after the vertical pass. `normalization` is not used for u8_hwc.
void resample(const InputRegion& input, const Stage& stage, const Normalization& normalization,
              const Destination& destination, ResampleScratch& scratch);

/// A straightforward implementation of resample(), for tests: one pixel at a time, one pass after the other.
void resample_reference(const InputRegion& input, const Stage& stage, const Normalization& normalization,
                        const Destination& destination);

}  // namespace trainopt
