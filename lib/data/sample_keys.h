// The keys of all random draws for a sample, so that a loader thread and a device draw the same.
#pragma once

#include "base/philox.h"

namespace trainopt {

class SampleKeys {
 public:
  explicit SampleKeys(uint64_t seed)
      : augmentation_(mix_key(seed, "augmentation")), substitute_(mix_key(seed, "substitute")) {}

  /// Key of a sample's random transforms.
  uint64_t augmentation(int64_t epoch, int64_t sample) const {
    return mix_key(mix_key(augmentation_, static_cast<uint64_t>(epoch)), static_cast<uint64_t>(sample));
  }
  /// Substitutes for a bad sample at this position of the epoch's order: call next_below(samples) until a sample is
  /// usable.
  PhiloxStream substitutes(int64_t epoch, int64_t position) const {
    return PhiloxStream(mix_key(substitute_, static_cast<uint64_t>(epoch)), static_cast<uint64_t>(position));
  }

 private:
  uint64_t augmentation_, substitute_;
};

}  // namespace trainopt
