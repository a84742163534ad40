// The binary version of CIFAR-10: records of a label and three planes of 32×32 pixels, nothing else.
// Format: https://www.cs.toronto.edu/~kriz/cifar.html.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

inline constexpr int64_t kCifarSide = 32, kCifarPixels = kCifarSide * kCifarSide, kCifarImageBytes = 3 * kCifarPixels;
inline constexpr int64_t kCifarClasses = 10;

struct CifarImages {
  std::vector<uint8_t> pixels;  ///< 8-bit RGB, interleaved, kCifarImageBytes an image
  std::vector<uint8_t> labels;
};

/// Appends all records of a file whose bytes these are. Throws UserError(data) naming `path`, for a size that is not
/// whole records or a label above 9, which it places; `images` is then unfinished.
void append_cifar10(std::string_view bytes, const std::string& path, CifarImages& images);

}  // namespace trainopt
