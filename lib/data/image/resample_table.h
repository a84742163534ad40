// The weights of antialiased bilinear resampling, as Pillow's 8-bit path has them.
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
  int64_t taps = 0;  ///< coefficients an output sample has room for; even; those beyond count[i] are zero
  std::vector<int32_t> first, count;  ///< [output]; count ≥ 1; first never decreases
  std::vector<int32_t> coefficients;  ///< [output × taps]
};

/// A line of `input` samples made into `output` samples. Equal lengths give the line itself.
ResampleTable make_resample_table(int64_t input, int64_t output);

/// Remembers the tables last made: random crops come in few hundred sizes, fixed images in one.
class ResampleTableCache {
 public:
  std::shared_ptr<const ResampleTable> get(int64_t input, int64_t output);

 private:
  std::unordered_map<uint64_t, std::shared_ptr<const ResampleTable>> tables_;
};

}  // namespace trainopt
