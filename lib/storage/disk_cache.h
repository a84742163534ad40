// A cache of remote files on a local disk, shared by all processes of the machine that name its folder.
//
// Each version of a file has one cache file, named by the hash of name, version and size:
//
//   0          a header with the file's name and version
//   4096       for each block of kCacheBlock bytes its checksum (XXH3, never 0); 0: the block is not cached
//   data_at    the file's bytes at their own offsets; blocks that are not cached are holes
//
// A block's bytes are written before its checksum, and every block that is read is compared with its checksum. So a
// process that was killed, a power failure or a damaged disk can only cost a block, which is then fetched again. The
// checksums are read from the file each time: what one process has stored, all others find at once. They are not
// mapped, because mapped memory ends the process when the disk fails, or when a full one has no room behind a hole.
//
// Each process measures the folder after storing a 64th of its size, so the folder may exceed its size by that for each
// further process that stores. When the folder is full, cache files that no process uses are removed, those used
// longest ago first. If all are in use, nothing more is stored: with a new random order in every epoch a resident part
// that stays has the hit rate of any replacement, without its writes.
#pragma once

#include "storage/data_file.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace trainopt {

inline constexpr int64_t kCacheBlock = 8 << 10;

struct DiskCacheOptions {
  std::filesystem::path folder;
  int64_t size = 0;    ///< bytes on the disk that the folder may take
  bool verify = true;  ///< compare every block that is read with its checksum; false: only the first time after opening
};

/// What one process read since it opened the cache. Safe to read from many threads.
struct CacheCounters {
  std::atomic<int64_t> hit_bytes{0};     ///< read from the cache
  std::atomic<int64_t> missed_bytes{0};  ///< fetched, because they were not there
  std::atomic<int64_t> damaged{0};       ///< blocks that did not fit their checksum, and were fetched again
};

class DiskCache {
 public:
  /// Creates the folder if it is missing. Throws UserError(data) if that is impossible, if the folder holds other files
  /// than a cache's, or for a size below one block.
  explicit DiskCache(const DiskCacheOptions& options);
  ~DiskCache();
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  /// `far`, read through the cache. A cache that cannot store (a full or read-only disk) is bypassed, with one warning.
  std::unique_ptr<const DataFile> through(std::unique_ptr<const DataFile> far);
  const CacheCounters& counters() const;

  struct State;

 private:
  std::shared_ptr<State> state_;  ///< also held by the files
};

}  // namespace trainopt
