// The files of a data set: local, or in object storage, then perhaps through a cache on a local disk.
#pragma once

#include "base/json.h"
#include "storage/config.h"
#include "storage/data_file.h"
#include "storage/disk_cache.h"
#include "storage/memory_cache.h"
#include "storage/path_kind.h"
#include "storage/read_times.h"
#include "storage/s3/credentials.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

class RemoteStore;

/// What was read of remote files since they were first opened.
struct StorageUse {
  int64_t fetched_bytes = 0;  ///< bytes from afar, also those fetched in vain
  int64_t requests = 0, retries = 0;
  int64_t hit_bytes = 0, missed_bytes = 0;  ///< bytes found in the cache, and not found
  int64_t damaged = 0;                      ///< blocks of the disk cache that were fetched again
  int64_t concurrency = 0;                  ///< data.storage.concurrency
  ReadSpeed speed;

  /// The cache's hits in percent of the bytes asked of it; null without a cache.
  std::optional<double> hit_pct() const;
  /// The speed of fetching while at least one read was under way.
  double mib_per_s() const;
  /// Whether twice the concurrency promises more: all requests are under way, and answers take no longer than when few
  /// are. False if too few reads were made to say so.
  bool more_concurrency_helps() const;
  /// "12.3 MiB fetched in 40 requests, 2 of them repeated; 75.0 % of the bytes were in the cache".
  std::string text() const;
  /// "23.8 MiB/s, answers in 41 ms, 99 % of them within 160 ms; 31.8 of 32 requests under way: …"; empty without reads.
  std::string speed_text() const;
};
Json to_json(const StorageUse& use);

/// Remote files are read through this cache; none, one or the other.
struct FileCaches {
  std::optional<DiskCacheOptions> disk = std::nullopt;
  std::optional<int64_t> memory = std::nullopt;  ///< bytes
};

/// Throws UserError(data) for a remote path whose text cannot be one of an object, a folder or a pattern.
void require_remote_path(const std::string& path);

/// Safe to use from many threads.
class DataFiles {
 public:
  /// `variables`: AWS_… and HOME. Nothing is opened before it is needed.
  DataFiles(const StorageConfig& config, const FileCaches& caches, Variables variables);
  ~DataFiles();

  /// What is in the folder `path`: the paths of its files, and those of its folders with a slash at the end, in
  /// bytewise order. Throws UserError(data) if it cannot be listed.
  std::vector<std::string> list(const std::string& path);
  /// The files and folders, as list() writes them, that fit a pattern. Throws UserError(data) if a folder cannot be
  /// listed, and for a pattern in object storage in another place than after the last slash.
  std::vector<std::string> matching(const std::string& pattern);
  /// Throws UserError(data) if it is missing or cannot be read.
  std::unique_ptr<const DataFile> open(const std::string& path);
  /// Differs for all objects of a process.
  int64_t number() const { return number_; }
  /// Null if all files were local.
  std::optional<StorageUse> use() const;

 private:
  std::shared_ptr<RemoteStore> store();

  int64_t number_;
  StorageConfig config_;
  FileCaches caches_;
  Variables variables_;
  mutable std::mutex mutex_;
  std::shared_ptr<RemoteStore> store_;
  std::unique_ptr<DiskCache> disk_cache_;
  std::unique_ptr<MemoryCache> memory_cache_;
};

}  // namespace trainopt
