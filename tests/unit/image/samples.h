// Images that a script in another language can make too, and a hash to compare results by.
#pragma once

#include "data/image/resample.h"

#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace trainopt {

/// Noise: the top bytes of a linear congruential generator (Knuth's MMIX constants) that starts at height × 65536 +
/// width.
inline ImageU8 pattern(int64_t height, int64_t width) {
  ImageU8 image;
  image.set_size({height, width});
  uint64_t state = static_cast<uint64_t>(height * 65536 + width);
  for (int64_t i = 0; i < height * width * 3; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    image.row(0)[i] = static_cast<uint8_t>(state >> 56);
  }
  return image;
}

/// FNV-1a over bytes.
inline uint64_t hash_bytes(const void* data, size_t count) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (size_t i = 0; i < count; ++i) hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001B3u;
  return hash;
}

/// Memory for one image in any format.
struct Output {
  std::vector<uint8_t> bytes;
  Destination destination;

  Output(PixelFormat format, int64_t height, int64_t width)
      : bytes(static_cast<size_t>(height * width * 3) * (format == PixelFormat::u8_hwc ? 1 : 4), 0xAB),
        destination{format, bytes.data(), height, width} {}
  Output(const Output&) = delete;
  uint64_t hash() const { return hash_bytes(bytes.data(), bytes.size()); }
  const float* floats() const { return reinterpret_cast<const float*>(bytes.data()); }
};

inline std::vector<uint8_t> file_bytes(const std::string& name) {
  std::ifstream file(std::string(IMAGE_FILES) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace trainopt
