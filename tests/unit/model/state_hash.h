// A number that stands for the names and shapes of a model's tensors.
#pragma once

#include "model/weights_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trainopt {

/// FNV-1a of "name [shape]\n" over all tensors, in their order.
inline uint64_t hash_of(const NamedTensors& state) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const auto& [name, tensor] : state)
    for (const unsigned char c : fmt::format("{} [{}]\n", name, fmt::join(tensor.sizes(), ", ")))
      hash = (hash ^ c) * 0x100000001B3u;
  return hash;
}

}  // namespace trainopt
