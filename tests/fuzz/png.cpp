// PNG: every kind decodes to an image of the announced size or is refused. Checksums are put right first, since a fuzzer cannot guess them.
#include "data/image/png.h"
#include "support.h"

#include <zlib.h>

#include <vector>

using namespace trainopt;

namespace {

constexpr size_t kSignature = 8, kAroundChunk = 12;   // length and name before, checksum behind
constexpr int64_t kMostPixels = 1 << 18;

uint32_t number_at(const uint8_t* bytes) { return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3]; }

void repair_checksums(std::vector<uint8_t>& file) {
  for (size_t at = kSignature; at + kAroundChunk <= file.size();) {
    const size_t length = number_at(&file[at]);
    if (length > file.size() - at - kAroundChunk) return;
    const auto sum = static_cast<uint32_t>(crc32(0, &file[at + 4], static_cast<uInt>(length + 4)));
    for (size_t i = 0; i < 4; ++i) file[at + 8 + length + i] = static_cast<uint8_t>(sum >> (24 - 8 * i));
    at += kAroundChunk + length;
  }
}

/// Within the limits, but slow.
bool is_large(const std::vector<uint8_t>& file) {
  if (file.size() < kSignature + 16) return false;
  const int64_t width = number_at(&file[kSignature + 8]), height = number_at(&file[kSignature + 12]);
  return width <= kMostImageSide && height <= kMostImageSide && width * height <= kMostImagePixels && width * height > kMostPixels;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> file(data, data + size);
  repair_checksums(file);
  if (is_large(file)) return 0;
  ImageU8 image;
  try {
    decode_png(file, image);
    FUZZ_CHECK(image.size().width == number_at(&file[kSignature + 8]) && image.size().height == number_at(&file[kSignature + 12]));
  } catch (const BadSample&) {
  }
  return 0;
}
