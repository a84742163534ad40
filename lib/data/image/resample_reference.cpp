#include "data/image/resample.h"

#include <algorithm>

namespace trainopt {

namespace {

uint8_t round_to_byte(int64_t sum) {
  return static_cast<uint8_t>(
      std::clamp<int64_t>((sum + (int64_t{1} << (kResampleBits - 1))) >> kResampleBits, 0, 255));
}

}  // namespace

void resample_reference(const InputRegion& input, const Stage& stage, const Normalization& normalization,
                        const Destination& destination) {
  const ResampleTable columns = make_resample_table(stage.source.width, stage.resized.width);
  const ResampleTable rows = make_resample_table(stage.source.height, stage.resized.height);
  const auto source_pixel = [&](int64_t y, int64_t x, int channel) {
    return input.view.pixels[(stage.source.top + y - input.top) * input.view.stride +
                             (stage.source.left + x - input.left) * 3 + channel];
  };
  const auto resized_pixel = [&](int64_t y, int64_t x, int channel) {
    int64_t sum = 0;
    for (int32_t i = 0; i < rows.count[y]; ++i) {
      int64_t row_sum = 0;
      for (int32_t j = 0; j < columns.count[x]; ++j)
        row_sum += int64_t{columns.coefficients[x * columns.taps + j]} *
                   source_pixel(rows.first[y] + i, columns.first[x] + j, channel);
      sum += int64_t{rows.coefficients[y * rows.taps + i]} * round_to_byte(row_sum);
    }
    return round_to_byte(sum);
  };
  for (int64_t y = 0; y < stage.window.height; ++y) {
    for (int64_t x = 0; x < stage.window.width; ++x) {
      const int64_t at_y = stage.window.top + y;
      const int64_t at_x = stage.window.left + (stage.flip ? stage.window.width - 1 - x : x);
      const Rect& valid = stage.valid;
      const bool inside = at_y >= valid.top && at_y < valid.bottom() && at_x >= valid.left && at_x < valid.right();
      for (int channel = 0; channel < 3; ++channel) {
        const uint8_t value = inside ? resized_pixel(at_y, at_x, channel) : 0;
        const int64_t interleaved = (y * destination.width + x) * 3 + channel;
        const int64_t planar = (channel * destination.height + y) * destination.width + x;
        switch (destination.format) {
          case PixelFormat::u8_hwc:
            static_cast<uint8_t*>(destination.data)[interleaved] = value;
            break;
          case PixelFormat::f32_hwc:
            static_cast<float*>(destination.data)[interleaved] = normalization.apply(value, channel);
            break;
          case PixelFormat::f32_chw:
            static_cast<float*>(destination.data)[planar] = normalization.apply(value, channel);
            break;
        }
      }
    }
  }
}

}  // namespace trainopt
