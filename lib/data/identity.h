// A data set's fingerprint, small enough to store in a checkpoint, to check that a resumed run finds the same samples.
#pragma once

#include "storage/data_file.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct DataIdentity {
  std::string kind;  ///< "cifar10"
  int64_t samples = 0;
  int64_t classes = 0;
  std::string
      content;  ///< changes with the files' names, sizes and order, or with their bytes if these are read anyway
  /// The hash of blocks of the files (hash_of_blocks()). Empty: the files are remote, there are none, `content` has all
  /// their bytes, or this was stored before blocks were read.
  std::string blocks = {};
  /// The hash of the files' times of change, or of remote files' ETags. The same data may have others: it was copied.
  std::string versions = {};
};

/// The first field that differs, as in "samples 10000 → 9000"; null if none does. Blocks are compared if both have any,
/// and versions never.
std::optional<std::string> first_difference(const DataIdentity& before, const DataIdentity& now);
/// Whether the files' versions differ; not if one of the two has none.
bool has_other_versions(const DataIdentity& before, const DataIdentity& now);

// Blocks of a data set's files, for its identity: too few to cost time, and enough that data which was overwritten in
// place hardly goes unnoticed.

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
/// Follows links.
FileStatus status_of(const std::string& path);

struct BlockPlace {
  std::string path;
  int64_t offset = 0;
};

/// kDrawnBlocks different places, drawn from `key` among all blocks of the files; all of them if there are no more.
std::vector<BlockPlace> draw_blocks(const std::vector<BlockFile>& files, uint64_t key);
/// The block of this file that `key` draws; it must not be empty.
BlockPlace draw_block(const BlockFile& file, uint64_t key);
/// The key that draws a data set's blocks. It depends on kind, samples, classes and content.
uint64_t block_key(const DataIdentity& identity);
/// The hash of the bytes at these places, in order. What cannot be read stands for itself: it may be a bad sample,
/// which the recipe allows. Several threads read, because far or cold storage takes milliseconds for each block.
std::string hash_of_blocks(const std::vector<BlockPlace>& places);

/// `identity` with the versions of its files, and, if all are local, with a hash of their blocks.
DataIdentity with_files(DataIdentity identity, const std::vector<const DataFile*>& files);

}  // namespace trainopt
