#include "data/formats/parquet/listed_pixels.h"

#include "data/image/decode.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt {
namespace {

/// Pixels of one size from lists of numbers.
struct Layout {
  ImageSize size;
  bool planes_first;  ///< 3 × height × width
  int64_t channels;
};

Layout layout_of(const ParquetNumbers& numbers) {
  const auto& lengths = numbers.list_lengths;
  if (std::find(lengths.begin(), lengths.end(), 0) != lengths.end())
    throw BadSample("the lists of pixels differ in length");
  Layout pixels{.size = {lengths[0], lengths[1]}, .planes_first = false, .channels = 1};
  if (lengths.size() == 3) {
    pixels.channels = 3;
    pixels.planes_first = lengths[2] != 3 && lengths[0] == 3;
    if (pixels.planes_first) pixels.size = {lengths[1], lengths[2]};
    if (!pixels.planes_first && lengths[2] != 3)
      throw BadSample(
          fmt::format("lists of {} × {} × {} numbers are no RGB images", lengths[0], lengths[1], lengths[2]));
  }
  if (pixels.size.height > kMaxPixels / pixels.size.width)
    throw BadSample(fmt::format("lists of {} × {} pixels are more than {} pixels", pixels.size.height,
                                pixels.size.width, kMaxPixels));
  return pixels;
}

uint8_t pixel(const ParquetNumbers& numbers, int64_t index) {
  const double value = numbers.values[static_cast<size_t>(index)];
  if (numbers.missing[static_cast<size_t>(index)] || value < 0 || value > 255)
    throw BadSample("a pixel is missing or not within 0 and 255");
  return static_cast<uint8_t>(value);
}

/// 8-bit RGB, row by row.
ParquetBytes rgb(const ParquetNumbers& numbers, const Layout& pixels) {
  ParquetBytes to;
  const int64_t area = pixels.size.height * pixels.size.width, in = area * pixels.channels,
                rows = static_cast<int64_t>(numbers.ends.size());
  if (static_cast<int64_t>(numbers.values.size()) != rows * in) throw BadSample("a row has no pixels");
  to.bytes.reserve(static_cast<size_t>(rows * area * 3));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < area; ++i)
      for (int64_t channel = 0; channel < 3; ++channel) {
        const int64_t interleaved = pixels.channels == 1 ? i : i * 3 + channel;
        to.bytes.push_back(pixel(numbers, row * in + (pixels.planes_first ? channel * area + i : interleaved)));
      }
    to.ends.push_back(static_cast<int64_t>(to.bytes.size()));
  }
  return to;
}

}  // namespace

ListedPixels pixels_of(const ParquetNumbers& numbers) {
  const Layout layout = layout_of(numbers);
  return {layout.size, rgb(numbers, layout)};
}

}  // namespace trainopt
