// From 8-bit values to the floats a network takes: torchvision's ToTensor and Normalize.
#pragma once

#include <array>
#include <cstdint>

namespace trainopt {

struct Normalization {
  std::array<float, 3> mean{0, 0, 0}, std{1, 1, 1};

  /// (value / 255 - mean) / std in float32, each operation rounded: torchvision's bits.
  float apply(uint8_t value, int channel) const {
    return (static_cast<float>(value) / 255.0f - mean[channel]) / std[channel];
  }
};

}  // namespace trainopt
