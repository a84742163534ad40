// Random numbers of 16 bits for every element of a tensor. Each is a function of (key, step, element), so they do not
// depend on threads, device or layout.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainopt::precision {

struct HalvesRange {
  int64_t first = 0, count = 0;
};

/// [range.count] int32, uniform in [0, 2^16). The block philox(key, step, i) has numbers 8i to 8i + 7, the low half of
/// each word first.
at::Tensor random_halves(const HalvesRange& range, uint64_t key, uint64_t step, at::Device device);

/// The same numbers from tensor operations: for devices other than the CPU. Takes about a hundred operations.
at::Tensor random_halves_by_operations(const HalvesRange& range, uint64_t key, uint64_t step, at::Device device);

}  // namespace trainopt::precision
