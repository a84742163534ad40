// Converts 8-bit values to a network's float inputs, as torchvision's ToTensor and Normalize do.
#pragma once

#include <array>
#include <cstdint>

namespace trainopt {

struct Normalization {
  std::array<float, 3> mean{0, 0, 0}, std{1, 1, 1};

  /// (value / 255 - mean) / std in float32, each operation rounded: bit-identical to torchvision.
  float apply(uint8_t value, int channel) const {
    return (static_cast<float>(value) / 255.0f - mean[channel]) / std[channel];
  }
};

}  // namespace trainopt
