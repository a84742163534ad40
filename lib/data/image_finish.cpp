#include "data/image_finish.h"

#include "data/image/resample.h"
#include "data/image/resample_table.h"
#include "device/tensor.h"
#include "kernels/image_finish/resize_bits.h"

#include <algorithm>

namespace trainopt {
namespace {

static_assert(kResampleBits == kernels::kResizeBits);

kernels::Extent extent_of(const ImageSize& size) { return {size.height, size.width}; }
Rect rect_of(const kernels::Box& box) { return {box.top, box.left, box.height, box.width}; }

class LoaderResizer : public kernels::Resizer {
 public:
  kernels::ResizeWeights weights(int64_t shortest, int64_t longest, int64_t output) const override {
    std::vector<ResampleTable> tables;
    int64_t taps = 0;
    for (int64_t length = shortest; length <= longest; ++length) {
      tables.push_back(make_resample_table(length, output));
      taps = std::max(taps, tables.back().taps);
    }
    const auto lines = static_cast<int64_t>(tables.size());
    const at::Tensor first = at::empty({lines, output}, at::kInt), count = at::empty({lines, output}, at::kInt),
                     coefficients = at::zeros({lines, output, taps}, at::kInt);
    for (int64_t line = 0; line < lines; ++line) {
      const ResampleTable& table = tables[static_cast<size_t>(line)];
      std::copy(table.first.begin(), table.first.end(), first.mutable_data_ptr<int32_t>() + line * output);
      std::copy(table.count.begin(), table.count.end(), count.mutable_data_ptr<int32_t>() + line * output);
      for (int64_t i = 0; i < output; ++i)
        std::copy_n(table.coefficients.data() + i * table.taps, table.taps,
                    coefficients.mutable_data_ptr<int32_t>() + (line * output + i) * taps);
    }
    return {shortest, first, count, coefficients};
  }

  void resize(const kernels::ResizedWindow& w, uint8_t* out) const override {
    thread_local ResampleScratch scratch;
    const Stage stage{.source = rect_of(w.box),
                      .resized = {w.resized.height, w.resized.width},
                      .window = rect_of(w.window),
                      .valid = rect_of(w.shown),
                      .flip = w.flip};
    resample({{w.image, w.extent.height, w.extent.width, w.extent.width * 3}, 0, 0}, stage, {},
             {PixelFormat::u8_hwc, out, w.window.height, w.window.width}, scratch);
  }
};

}  // namespace

kernels::ImageFinish make_image_finish(const std::optional<ImageResize>& resize, const Normalization& normalization,
                                       const FinishedAs& result, c10::Device device) {
  std::optional<kernels::ImageFinish::Resize> resized;
  if (resize)
    resized = {extent_of(resize->from), extent_of(resize->to), resize->boxed, std::make_shared<LoaderResizer>()};
  return {resized,
          {normalization.mean, normalization.std},
          {extent_of(result.size), result.type, result.memory_format},
          device};
}

}  // namespace trainopt
