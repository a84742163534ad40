#include "data/image/decode.h"

#include "data/image/jpeg.h"
#include "data/image/png.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt {

void check_image_size(ImageSize size) {
  if (size.height < 1 || size.width < 1) throw BadSample("the image has no pixels");
  if (size.height > kMaxImageSide || size.width > kMaxImageSide || size.height * size.width > kMaxImagePixels)
    throw BadSample(fmt::format("an image of {}x{} pixels is over the limits of {} per side and {} in total",
                                size.width, size.height, kMaxImageSide, kMaxImagePixels));
}

ImageKind image_kind(std::span<const uint8_t> file) {
  const auto starts_with = [&](std::initializer_list<uint8_t> magic) {
    return file.size() >= magic.size() && std::equal(magic.begin(), magic.end(), file.begin());
  };
  if (file.empty()) throw BadSample("the file is empty");
  if (starts_with({0xFF, 0xD8, 0xFF})) return ImageKind::jpeg;
  if (starts_with({0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'})) return ImageKind::png;
  throw BadSample("the file is neither JPEG nor PNG");
}

void decode_image(std::span<const uint8_t> file, ImageU8& out) {
  if (image_kind(file) == ImageKind::png) return decode_png(file, out);
  JpegReader reader(file);
  reader.read_all(out);
}

}  // namespace trainopt
