// Decodes JPEG and PNG files to the same pixels as Pillow's Image.open(file).convert("RGB"). EXIF rotation and colour
// profiles are ignored.
#pragma once

#include "data/image/decode_memory.h"
#include "data/image/image.h"

#include <memory>
#include <span>

namespace trainopt {

/// Pillow's limits (PIL.Image.MAX_IMAGE_PIXELS): it refuses files with more than twice as many pixels as it warns
/// about.
inline constexpr int64_t kManyPixels = 89478485, kMaxPixels = 178956970;
inline constexpr int kMaxScans = 500;  ///< scans of a progressive JPEG

enum class DecodeSize {
  full,    ///< Pillow's pixels
  reduced  ///< a JPEG resized to at most 1/2, 1/4 or 1/8 is decoded at that size: faster, but other pixels
};

struct DecodeOptions {
  DecodeSize size = DecodeSize::full;
  int64_t max_pixels = kMaxPixels;                 ///< data.max_pixels: files with more are bad samples
  std::shared_ptr<DecodeMemory> memory = nullptr;  ///< what large images are counted in; null: nothing
};

/// Called with the values in a file's header, before anything is allocated. Throws BadSample if there are more pixels
/// than `max_pixels`, or none.
void check_image_size(ImageSize size, int64_t max_pixels);

/// What an image that takes so many bytes to decode takes of `options.memory`; empty for one that is not large.
DecodeMemory::Hold hold_for(int64_t bytes, const DecodeOptions& options);

enum class ImageKind { jpeg, png };
/// Determined by the first bytes. Throws BadSample if the file is neither JPEG nor PNG.
ImageKind image_kind(std::span<const uint8_t> file);

/// Decodes the complete image. Returns what a large one takes of `options.memory`, to be held as long as `out` is
/// needed. Throws BadSample if the file is truncated, cannot be decoded, or is damaged in a way that the decoder can
/// detect.
DecodeMemory::Hold decode_image(std::span<const uint8_t> file, ImageU8& out, const DecodeOptions& options = {});

}  // namespace trainopt
