#include "data/resize_weights.h"

#include "data/image/resample_table.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace trainopt {

ResizeWeights make_resize_weights(int64_t shortest, int64_t longest, int64_t output, c10::Device device) {
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
  return {shortest, first.to(device), count.to(device), coefficients.to(device)};
}

at::Tensor resize_lines(const at::Tensor& images, int64_t dim, const ResizeWeights& weights, const at::Tensor& begin,
                        const at::Tensor& length) {
  const int64_t items = images.size(0), output = weights.first.size(1), taps = weights.coefficients.size(2);
  const at::Tensor line = length - weights.shortest;
  const at::Tensor first = weights.first.index_select(0, line).to(at::kLong) + begin.view({items, 1});
  const at::Tensor coefficients = weights.coefficients.index_select(0, line);
  auto sizes = images.sizes().vec();
  sizes[static_cast<size_t>(dim)] = output;
  std::vector<int64_t> along{items, 1, 1, 1};
  along[static_cast<size_t>(dim)] = output;
  at::Tensor sums = at::full(sizes, 1 << (kResampleBits - 1), images.options().dtype(at::kInt));
  for (int64_t tap = 0; tap < taps; ++tap) {
    const at::Tensor from =
        (first + tap).clamp_max(images.size(dim) - 1).view(along).expand(sizes);  // behind the end the weight is zero
    sums += images.gather(dim, from).to(at::kInt) * coefficients.select(2, tap).contiguous().view(along);
  }
  return sums.bitwise_right_shift(kResampleBits).clamp_max(255).to(at::kByte);
}

}  // namespace trainopt
