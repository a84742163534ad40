// Philox4x32-10: a counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// The i-th draw is a pure function of key and counter, so results do not depend on threads or on earlier draws.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trainopt {

using PhiloxBlock = std::array<uint32_t, 4>;

/// One block of 128 random bits for (key, counter).
PhiloxBlock philox(uint64_t key, uint64_t counter_high, uint64_t counter_low);

/// Mixes words into one 64-bit key (SplitMix64 steps); different orders give different keys.
uint64_t mix_key(uint64_t a, uint64_t b);
uint64_t mix_key(uint64_t seed, std::string_view name);

/// The sequence of draws that `key` and `stream` identify.
class PhiloxStream {
 public:
  explicit PhiloxStream(uint64_t key, uint64_t stream = 0) : key_(key), stream_(stream) {}

  uint32_t next_u32();
  double next_unit();                            ///< uniform in [0, 1), 53 bits
  double next_uniform(double low, double high);  ///< uniform in [low, high)
  uint64_t next_below(uint64_t bound);           ///< uniform in [0, bound), unbiased; bound ≥ 1
  double next_normal();                          ///< standard normal (Box–Muller)

 private:
  uint64_t key_, stream_, counter_ = 0;
  PhiloxBlock block_{};
  int left_ = 0;
};

}  // namespace trainopt
