// The weights of antialiased bilinear resampling, as in Pillow's 8-bit path.
#pragma once

#include "data/image/resample_bits.h"

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace trainopt {

/// Output sample i = (sum over t < count[i] of coefficients[i * taps + t] × input[first[i] + t] + half) >>
/// kResampleBits.
struct ResampleTable {
  int64_t output = 0;
  int64_t taps = 0;                   ///< coefficients stored per output sample; even; those beyond count[i] are zero
  std::vector<int32_t> first, count;  ///< [output]; count ≥ 1; first never decreases
  std::vector<int32_t> coefficients;  ///< [output × taps]
};

/// The weights that resample a line of `input` samples to `output` samples; the identity if the lengths are equal.
ResampleTable make_resample_table(int64_t input, int64_t output);

/// Caches recent tables: random crops come in a few hundred sizes, images of fixed size in one.
class ResampleTableCache {
 public:
  std::shared_ptr<const ResampleTable> get(int64_t input, int64_t output);

 private:
  std::unordered_map<uint64_t, std::shared_ptr<const ResampleTable>> tables_;
};

}  // namespace trainopt
