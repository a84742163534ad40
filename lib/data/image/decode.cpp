#include "data/image/decode.h"

#include "base/files/file_kind.h"
#include "data/image/jpeg.h"
#include "data/image/png.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt {

void check_image_size(ImageSize size, int64_t max_pixels) {
  if (size.height < 1 || size.width < 1) throw BadSample("the image has no pixels");
  if (size.height > max_pixels / size.width)
    throw BadSample(fmt::format(
        "an image of {}x{} pixels (width x height) has more than data.max_pixels allows; raise that key to read it: {}",
        size.width, size.height, max_pixels));
}

DecodeMemory::Hold hold_for(int64_t bytes, const DecodeOptions& options) {
  return bytes < kLargeDecode ? nullptr : DecodeMemory::take(options.memory, bytes);
}

ImageKind image_kind(std::span<const uint8_t> file) {
  const auto starts_with = [&](std::initializer_list<uint8_t> magic) {
    return file.size() >= magic.size() && std::equal(magic.begin(), magic.end(), file.begin());
  };
  if (file.empty()) throw BadSample("the file is empty");
  if (starts_with({0xFF, 0xD8, 0xFF})) return ImageKind::jpeg;
  if (starts_with({0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'})) return ImageKind::png;
  const std::string_view kind = what_it_is(file);
  throw BadSample(kind.empty() ? "the file is neither JPEG nor PNG"
                               : fmt::format("the file is neither JPEG nor PNG but {}", kind));
}

DecodeMemory::Hold decode_image(std::span<const uint8_t> file, ImageU8& out, const DecodeOptions& options) {
  if (image_kind(file) == ImageKind::png) return decode_png(file, out, options);
  JpegReader reader(file, options.max_pixels);
  auto hold = hold_for(reader.bytes_to_decode(), options);
  reader.read_all(out);
  return hold;
}

}  // namespace trainopt
