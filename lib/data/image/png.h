// PNG through libpng: every kind of it to 8-bit RGB by Pillow's rules.
#pragma once

#include "data/image/decode.h"

namespace trainopt {

/// Alpha is dropped, palettes are looked up, 16-bit channels keep their high byte; 16-bit grey is cut to 255, as Pillow
/// does. Throws BadSample.
void decode_png(std::span<const uint8_t> file, ImageU8& out);

}  // namespace trainopt
