// Blocks of a data set's files, for its identity: too few to cost time, and enough that data which was overwritten in
// place hardly goes unnoticed.
#pragma once

#include "data/identity.h"
#include "storage/data_file.h"

#include <cstdint>
#include <string>
#include <vector>

namespace trainopt {

inline constexpr int64_t kBlockBytes = 4096;  ///< the last block of a file may have fewer
inline constexpr int64_t kDrawnBlocks = 1024;

/// A local file of a data set.
struct BlockFile {
  std::string path;
  int64_t bytes = 0;
};
struct FileStatus {
  int64_t bytes = -1;      ///< -1: it cannot be asked
  int64_t changed_ns = 0;  ///< time of the last change
};
/// Of the file that a link leads to.
FileStatus status_of(const std::string& path);

struct BlockPlace {
  std::string path;
  int64_t offset = 0;
};

/// kDrawnBlocks different places, drawn from `key` among all blocks of the files; all of them if there are no more.
std::vector<BlockPlace> draw_blocks(const std::vector<BlockFile>& files, uint64_t key);
/// The block of this file that `key` draws; it must not be empty.
BlockPlace draw_block(const BlockFile& file, uint64_t key);
/// From which the blocks of a data set are drawn: its kind, samples, classes and content.
uint64_t block_key(const DataIdentity& identity);
/// Stands for the bytes at these places, in order. What cannot be read stands for itself: it may be a bad sample, which
/// the recipe allows. Several threads read, because far or cold storage takes milliseconds for each block.
std::string hash_of_blocks(const std::vector<BlockPlace>& places);

/// `identity` with the versions of its files, and, if all are local, with a hash of their blocks.
DataIdentity with_files(DataIdentity identity, const std::vector<const DataFile*>& files);

}  // namespace trainopt
