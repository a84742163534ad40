// One cache file of a DiskCache: see disk_cache.h.
#pragma once

#include "storage/data_file.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// The hash of name, version and size.
uint64_t cache_identity(const DataFile& far);

/// Safe to use from many threads, and from many processes with the same file. While one is open, its file is locked
/// (shared flock), which keeps evict() from removing it.
class CacheFile {
 public:
  /// Opens the cache file of `far` in `folder`; makes it if it is missing or damaged. Null, with `reason`, if the disk
  /// refuses.
  static std::unique_ptr<CacheFile> open(const std::filesystem::path& folder, const DataFile& far, std::string& reason);
  ~CacheFile();
  CacheFile(const CacheFile&) = delete;
  CacheFile& operator=(const CacheFile&) = delete;

  int64_t blocks() const;
  /// The checksums of these blocks; 0: the block is not stored, or the disk fails.
  std::vector<uint64_t> sums(int64_t begin, int64_t end) const;
  /// Reads the file's bytes from `offset` on. False if the disk fails.
  bool read(int64_t offset, std::span<uint8_t> to) const;
  /// Whether these bytes have this checksum.
  static bool fits(uint64_t sum, std::span<const uint8_t> bytes);
  void drop(int64_t block);
  /// Stores a block. Returns an errno; 0: it was stored.
  int store(int64_t block, std::span<const uint8_t> bytes);

  /// Removes the cache file if no process has it open. Returns whether it did.
  static bool evict(const std::filesystem::path& path);

 private:
  CacheFile(int fd, int64_t size);
  bool is_valid(const DataFile& far) const;
  bool write_sum(int64_t block, uint64_t sum);

  int fd_;
  int64_t size_, data_at_;
};

inline constexpr std::string_view kCacheEnding = ".cache";
/// Whether a cache made the name: sixteen hexadecimal digits, `.cache`, and for a draft `.<process>.<number>`.
bool is_cache_name(std::string_view name);
bool is_draft_name(std::string_view name);

}  // namespace trainopt
