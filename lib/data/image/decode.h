// Decodes JPEG and PNG files to the same pixels as Pillow's Image.open(file).convert("RGB"). EXIF rotation and colour
// profiles are ignored.
#pragma once

#include "data/image/image.h"

#include <span>

namespace trainopt {

/// Limits on the values in a file's header, checked before anything is allocated.
inline constexpr int64_t kMaxImageSide = 16384;
inline constexpr int64_t kMaxImagePixels = 89478485;  // Pillow's warning threshold
inline constexpr int kMaxScans = 500;                 // scans of a progressive JPEG

/// Throws BadSample if the size exceeds the limits or is zero.
void check_image_size(ImageSize size);

enum class ImageKind { jpeg, png };
/// Determined by the first bytes. Throws BadSample if the file is neither JPEG nor PNG.
ImageKind image_kind(std::span<const uint8_t> file);

/// Decodes the complete image. Throws BadSample if the file is truncated, cannot be decoded, or is damaged in a way
/// that the decoder can detect.
void decode_image(std::span<const uint8_t> file, ImageU8& out);

}  // namespace trainopt
