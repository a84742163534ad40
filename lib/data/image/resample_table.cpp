#include "data/image/resample_table.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>

namespace trainopt {

// All arithmetic here is in double and in Pillow's order (Resample.c, precompute_coeffs), so that the fixed-point
// weights, and thus the pixels, are bit-identical.
ResampleTable make_resample_table(int64_t input, int64_t output) {
  TRAINOPT_CHECK(input >= 1 && output >= 1);
  const double scale = static_cast<double>(input) / static_cast<double>(output);
  const double support = std::max(scale, 1.0);  // the triangle extends this far to either side, in input samples
  const double inverse_support = 1.0 / support;
  const int64_t max_taps = static_cast<int64_t>(std::ceil(support)) * 2 + 1;

  ResampleTable table;
  table.output = output;
  table.first.resize(output);
  table.count.resize(output);
  std::vector<int32_t> fixed_weights(output * max_taps);
  std::vector<double> weights(max_taps);
  int64_t largest_count = 0;
  for (int64_t i = 0; i < output; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int64_t begin = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t end = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), input);
    double sum = 0;
    for (int64_t x = begin; x < end; ++x) {
      const double distance = std::abs((static_cast<double>(x) - center + 0.5) * inverse_support);
      weights[x - begin] = distance < 1.0 ? 1.0 - distance : 0.0;
      sum += weights[x - begin];
    }
    // Weights that round to zero at either end are dropped, which shortens the loops and changes no pixel.
    int64_t first = end, last = begin;
    for (int64_t x = begin; x < end; ++x) {
      const int32_t fixed = static_cast<int32_t>(0.5 + weights[x - begin] / sum * (1 << kResampleBits));
      if (fixed == 0) continue;
      first = std::min(first, x);
      last = x;
      fixed_weights[i * max_taps + x - first] = fixed;
    }
    table.first[i] = static_cast<int32_t>(first);
    table.count[i] = static_cast<int32_t>(last - first + 1);
    largest_count = std::max<int64_t>(largest_count, table.count[i]);
  }
  table.taps = (largest_count + 1) / 2 * 2;
  table.coefficients.assign(output * table.taps, 0);
  for (int64_t i = 0; i < output; ++i)
    std::copy_n(&fixed_weights[i * max_taps], table.count[i], &table.coefficients[i * table.taps]);
  return table;
}

std::shared_ptr<const ResampleTable> ResampleTableCache::get(int64_t input, int64_t output) {
  constexpr size_t kMaxTables = 512;
  const uint64_t key = static_cast<uint64_t>(input) << 32 | static_cast<uint64_t>(output);
  const auto found = tables_.find(key);
  if (found != tables_.end()) return found->second;
  if (tables_.size() >= kMaxTables) tables_.clear();
  return tables_[key] = std::make_shared<const ResampleTable>(make_resample_table(input, output));
}

}  // namespace trainopt
