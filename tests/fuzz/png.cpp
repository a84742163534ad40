// PNG: every input either decodes to an image of the announced size or is refused. Checksums are corrected first, since
// a fuzzer cannot guess them.
#include "data/image/png.h"
#include "support.h"

#include <zlib.h>

#include <cstring>
#include <optional>
#include <vector>

using namespace trainopt;

namespace {

constexpr size_t kSignature = 8, kAroundChunk = 12;  // length and name before the content, checksum after it
constexpr int64_t kMostDecoded = 1 << 18;

uint32_t number_at(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

/// Also returns the size in the header, which libpng accepts after other chunks too; nullopt if there is none.
std::optional<ImageSize> repair_checksums(std::vector<uint8_t>& file) {
  std::optional<ImageSize> announced;
  for (size_t at = kSignature; at + kAroundChunk <= file.size();) {
    const size_t length = number_at(&file[at]);
    if (length > file.size() - at - kAroundChunk) break;
    if (!announced && length >= 8 && std::memcmp(&file[at + 4], "IHDR", 4) == 0)
      announced = {number_at(&file[at + 12]), number_at(&file[at + 8])};
    const auto sum = static_cast<uint32_t>(crc32(0, &file[at + 4], static_cast<uInt>(length + 4)));
    for (size_t i = 0; i < 4; ++i) file[at + 8 + length + i] = static_cast<uint8_t>(sum >> (24 - 8 * i));
    at += kAroundChunk + length;
  }
  return announced;
}

bool is_within_limits(ImageSize size) { return size.width == 0 || size.height <= kMaxPixels / size.width; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> file(data, data + size);
  const std::optional<ImageSize> announced = repair_checksums(file);
  if (announced && is_within_limits(*announced) && announced->height * announced->width > kMostDecoded)
    return 0;  // slow
  ImageU8 image;
  try {
    decode_png(file, image);
    FUZZ_CHECK(announced && is_within_limits(*announced) && image.size() == *announced);
  } catch (const BadSample&) {
  }
  return 0;
}
