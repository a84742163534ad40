// Distribution of parameters to thread blocks, as a table passed by value with the launch: a captured launch keeps it.
#pragma once

#include "kernels/update/launch.h"

namespace trainopt::kernels::update {

inline constexpr int kThreads = 256;                       ///< per block
inline constexpr int kPack = 4;                            ///< floats read and written at once: 16 bytes
inline constexpr int64_t kChunk = int64_t{16} * kThreads;  ///< values per block: four packs per thread
/// Per launch: kernel arguments are limited to 32764 bytes (sm_70 and later, CUDA 12.1).
inline constexpr int kMaxParts = 512;

struct Table {
  Part parts[kMaxParts];
  int32_t first_block[kMaxParts];  ///< first block of each part, ascending
  int32_t count;
};
static_assert(sizeof(Table) < 32000);

constexpr int64_t blocks_of(int64_t size) { return (size + kChunk - 1) / kChunk; }

/// Calls with(table, blocks, blocks in previous tables) for as many tables as needed; returns their number.
template <class With>
int64_t each_table(const std::vector<Part>& parts, const With& with) {
  int64_t tables = 0, before = 0;
  Table table;
  for (size_t begin = 0; begin < parts.size(); begin += kMaxParts, ++tables) {
    int64_t blocks = 0;
    for (table.count = 0; table.count < kMaxParts && begin + static_cast<size_t>(table.count) < parts.size();
         ++table.count) {
      const Part& part = parts[begin + static_cast<size_t>(table.count)];
      table.parts[table.count] = part;
      table.first_block[table.count] = static_cast<int32_t>(blocks);
      blocks += blocks_of(part.size);
    }
    with(table, blocks, before);
    before += blocks;
  }
  return tables;
}

}  // namespace trainopt::kernels::update
