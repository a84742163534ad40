// PNG with libpng: decodes every format to 8-bit RGB by Pillow's rules, and encodes 8-bit RGB.
#pragma once

#include "data/image/decode.h"

namespace trainopt {

/// Alpha is dropped, palettes are expanded, and 16-bit colour channels keep their high byte; 16-bit grey is clamped to
/// 255, as in Pillow. Returns and throws as decode_image().
DecodeMemory::Hold decode_png(std::span<const uint8_t> file, ImageU8& out, const DecodeOptions& options = {});

/// The image as a PNG file.
std::vector<uint8_t> encode_png(const ImageView& image);

}  // namespace trainopt
