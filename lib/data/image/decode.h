// Files to pixels: JPEG and PNG, as Pillow's Image.open(file).convert("RGB") has them; EXIF rotation and colour
// profiles are ignored.
#pragma once

#include "data/image/image.h"

#include <span>

namespace trainopt {

/// Limits on what a header may announce, checked before anything is allocated.
inline constexpr int64_t kMostImageSide = 16384;
inline constexpr int64_t kMostImagePixels = 89478485;  // Pillow's warning threshold
inline constexpr int kMostScans = 500;                 // of a progressive JPEG

/// Throws BadSample beyond the limits.
void check_image_size(ImageSize size);

enum class ImageKind { jpeg, png };
/// By the first bytes. Throws BadSample for anything else.
ImageKind image_kind(std::span<const uint8_t> file);

/// The whole image. Throws BadSample for what cannot be decoded, is cut off or is damaged as far as the decoder can
/// tell.
void decode_image(std::span<const uint8_t> file, ImageU8& out);

}  // namespace trainopt
