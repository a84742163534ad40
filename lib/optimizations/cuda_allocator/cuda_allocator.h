// Settings of libtorch's caching allocator for GPU memory. They are process-wide.
#pragma once

#include "config/describe.h"
#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
struct OptionChecks;
}  // namespace trainopt

namespace trainopt::cuda_allocator {

inline constexpr Info kInfo{"cuda_allocator", Exactness::same_bits};

/// null: libtorch's own behaviour.
struct Config {
  bool expandable_segments = true;
  std::optional<int64_t> max_split_size_mb, roundup_power2_divisions;
  std::optional<double> garbage_collection_threshold;
};
template <class V>
void describe(V& v, Config& c) {
  v.field("expandable_segments", c.expandable_segments,
          "Let a few segments grow as needed instead of requesting a new one for each size.");
  v.field("max_split_size_mb", c.max_split_size_mb,
          "MiB. Never split cached blocks above this size for smaller tensors; needs expandable_segments: false.",
          in_range(20, 1 << 24));
  v.field(
      "roundup_power2_divisions", c.roundup_power2_divisions,
      "Round sizes up to one of this many steps per power of two, so that similar sizes share blocks; itself a power "
      "of two.",
      in_range(2, 1024));
  v.field("garbage_collection_threshold", c.garbage_collection_threshold,
          "Return unused blocks once this share of the GPU's memory is reserved; needs expandable_segments: false.",
          Bounds{.low = 0, .high = 1, .low_included = false, .high_included = false});
}

/// The settings in libtorch's syntax.
std::string settings_text(const Config& config);

void check(OptionChecks& checks, const Config& config);
Outcome apply(Plan& plan, const Config& config);

}  // namespace trainopt::cuda_allocator
