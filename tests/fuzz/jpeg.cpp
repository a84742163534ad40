// JPEG: the limits of the header hold, and a decoded part of an image has the pixels of the full image. Large images
// are decoded only up to the header, which keeps the target fast; a unit test bounds their memory.
#include "data/image/jpeg.h"
#include "support.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <optional>

using namespace trainopt;

namespace {

constexpr int64_t kMostDecoded = 1 << 18;  // pixels

/// A pseudo-random part of the image that depends only on the input.
Rect part_of(ImageSize size, uint64_t hash) {
  const auto draw = [&](int64_t limit) {
    const auto value = static_cast<int64_t>(hash % static_cast<uint64_t>(limit));
    hash = hash * 6364136223846793005u + 1442695040888963407u;
    return value;
  };
  const int64_t height = 1 + draw(size.height), width = 1 + draw(size.width);
  return {draw(size.height - height + 1), draw(size.width - width + 1), height, width};
}

/// Returns false if the reader refuses the part.
bool read_part(std::span<const uint8_t> file, const Rect& part, int reduction, ImageU8& buffer, InputRegion& region) {
  try {
    JpegReader reader(file);
    region = reader.read(part, reduction, buffer);
    return true;
  } catch (const BadSample&) {
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> file(data, size);
  std::optional<ImageSize> full;
  ImageU8 all;
  try {
    JpegReader reader(file);
    const ImageSize announced = reader.size();
    FUZZ_CHECK(announced.height >= 1 && announced.width >= 1 && announced.height * announced.width <= kMaxPixels);
    if (announced.height * announced.width > kMostDecoded) return 0;
    full = announced;
    reader.read_all(all);
  } catch (const BadSample&) {
    if (!full) return 0;
    all.set_size({0, 0});
  }
  const uint64_t hash = XXH3_64bits(data, size);
  const int reduction = 1 << (hash >> 60) % 4;
  const ImageSize complete{(full->height + reduction - 1) / reduction, (full->width + reduction - 1) / reduction};
  ImageU8 buffer;
  InputRegion region;
  const Rect part = part_of(complete, hash);
  const bool is_good = read_part(file, part, reduction, buffer, region);
  FUZZ_CHECK(reduction > 1 || is_good == (all.size().height > 0));  // one verdict, whatever the part
  if (!is_good || reduction > 1) return 0;
  for (int64_t y = part.top; y < part.bottom(); ++y)
    FUZZ_CHECK(std::memcmp(all.row(y) + part.left * 3,
                           region.view.pixels + (y - region.top) * region.view.stride + (part.left - region.left) * 3,
                           static_cast<size_t>(part.width * 3)) == 0);
  return 0;
}
