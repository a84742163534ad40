// The binary version of CIFAR-10: records of a label byte and three planes of 32×32 bytes, without a header.
// Format: https://www.cs.toronto.edu/~kriz/cifar.html.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

inline constexpr int64_t kCifarSide = 32, kCifarPixels = kCifarSide * kCifarSide, kCifarImageBytes = 3 * kCifarPixels;
inline constexpr int64_t kCifarClasses = 10;

/// Whether the file is named as one of CIFAR-10's: token files end in .bin too.
bool has_cifar10_name(const std::filesystem::path& file);

struct CifarImages {
  std::vector<uint8_t> pixels;  ///< 8-bit RGB, interleaved, kCifarImageBytes per image
  std::vector<uint8_t> labels;
};

/// Appends all records in `bytes`, the contents of the file `path`. Throws UserError(data), naming the file, if the
/// size is not a multiple of the record size or a label is above 9 (its position is named too); `images` is then
/// incomplete.
void append_cifar10(std::string_view bytes, const std::string& path, CifarImages& images);

}  // namespace trainopt
