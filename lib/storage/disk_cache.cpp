#include "storage/disk_cache.h"

#include "base/error.h"
#include "base/files/file_calls.h"
#include "base/files/files.h"
#include "base/log.h"
#include "storage/cache_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

/// How much may be stored between two looks at what the folder takes, as a share of its size. Each process looks for
/// itself, so the folder can exceed its size by this share for each other process that stores.
constexpr int64_t kLooksPerSize = 64;
/// A full cache looks again whether something may be evicted after this much was fetched past it.
constexpr int64_t kLookAgainBytes = int64_t{256} << 20;

struct StoredFile {
  fs::path path;
  int64_t disk_bytes, opened_ns;
};

/// Removes drafts of killed processes.
std::vector<StoredFile> stored_files(const fs::path& folder) {
  std::vector<StoredFile> files;
  for (const auto& name : names_in_folder(folder, ExitCode::data)) {
    struct stat status {};
    if (is_draft_name(name)) CacheFile::evict(folder / name);
    if (is_draft_name(name) || !is_cache_name(name) || ::stat((folder / name).c_str(), &status) != 0) continue;
    files.push_back({folder / name, int64_t{status.st_blocks} * 512,
                     int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.opened_ns < b.opened_ns; });
  return files;
}

void require_cache_folder(const fs::path& folder) {
  for (const auto& name : names_in_folder(folder, ExitCode::data))
    if (!is_cache_name(name))
      throw UserError(fmt::format("the folder of data.cache holds other files too; choose an empty one, because old "
                                  "cache files are removed from it: {}",
                                  (folder / name).string()),
                      ExitCode::data);
}

}  // namespace

struct DiskCache::State {
  explicit State(DiskCacheOptions o) : options(std::move(o)), look_after(options.size / kLooksPerSize) {}

  DiskCacheOptions options;
  int64_t look_after;
  CacheCounters counters;
  std::atomic<bool> is_off{false};  ///< the disk refused
  std::mutex mutex;
  int64_t room = 0;        ///< bytes that may be stored before the next look; guarded by the mutex, as the next
  int64_t until_look = 0;  ///< bytes to be fetched past a full cache before the next look

  /// Whether so many bytes more may be stored.
  bool reserve(int64_t bytes) {
    if (is_off.load(std::memory_order_relaxed)) return false;
    const std::lock_guard lock(mutex);
    try {
      if (bytes > room && (until_look -= bytes) < 0) look(bytes);
    } catch (const UserError& error) {
      turn_off(error.what());
      return false;
    }
    if (bytes > room) return false;
    room -= bytes;
    return true;
  }

  void turn_off(const std::string& reason) {
    if (!is_off.exchange(true))
      log_warning("data.cache stores nothing more in this run: {}: {}", options.folder.string(), reason);
  }

 private:
  /// Measures what the folder takes, and removes what no process uses if that is too much.
  void look(int64_t bytes) {
    const int64_t wanted = std::max(look_after, bytes);
    auto files = stored_files(options.folder);
    int64_t taken = 0;
    for (const auto& file : files) taken += file.disk_bytes;
    for (const auto& file : files) {
      if (taken + wanted <= options.size) break;
      if (CacheFile::evict(file.path)) taken -= file.disk_bytes;
    }
    room = std::min(options.size - taken, wanted);
    until_look = bytes > room ? kLookAgainBytes : 0;
  }
};

namespace {

class CachedFile : public DataFile {
 public:
  CachedFile(std::unique_ptr<const DataFile> far, std::unique_ptr<CacheFile> near,
             std::shared_ptr<DiskCache::State> cache)
      : DataFile(far->name(), far->size(), far->version()),
        far_(std::move(far)),
        near_(std::move(near)),
        cache_(std::move(cache)),
        verified_(std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(near_->blocks()))) {}

  std::span<const uint8_t> read(int64_t offset, int64_t bytes, std::vector<uint8_t>& scratch) const override {
    TRAINOPT_CHECK(offset >= 0 && bytes >= 0 && bytes <= size() - offset);
    if (bytes == 0) return {};
    const int64_t first = offset / kCacheBlock, end = (offset + bytes - 1) / kCacheBlock + 1;
    scratch.resize(static_cast<size_t>(std::min(end * kCacheBlock, size()) - first * kCacheBlock));
    for (const Run& run : runs_to_read(first, end)) {
      const std::span<uint8_t> to =
          std::span(scratch).subspan(static_cast<size_t>((run.begin - first) * kCacheBlock), run_bytes(run));
      if (!run.is_near || !read_near(run, to)) fetch(run, to);
    }
    return std::span(scratch).subspan(static_cast<size_t>(offset - first * kCacheBlock), static_cast<size_t>(bytes));
  }

  void expect(int64_t offset, int64_t bytes) const override {
    if (bytes == 0) return;
    const int64_t first = offset / kCacheBlock, end = (offset + bytes - 1) / kCacheBlock + 1;
    {
      const std::lock_guard lock(mutex_);
      if (announced_.contains({first, end})) return;  // what is under way must be asked for as it was announced
    }
    auto runs = runs_now(first, end);
    for (const Run& run : runs)
      if (!run.is_near) far_->expect(run.begin * kCacheBlock, static_cast<int64_t>(run_bytes(run)));
    const std::lock_guard lock(mutex_);
    if (announced_.size() >= kMostAnnounced) announced_.clear();
    announced_.try_emplace({first, end}, std::move(runs));
  }
  int64_t reads_ahead() const override { return far_->reads_ahead(); }

 private:
  /// Blocks next to each other, which are all stored or all not.
  struct Run {
    int64_t begin, end;
    bool is_near;
  };

  using Runs = std::vector<Run>;
  static constexpr size_t kMostAnnounced = 1 << 14;

  Runs runs_now(int64_t first, int64_t end) const {
    Runs runs;
    const std::vector<uint64_t> sums = near_->sums(first, end);
    for (int64_t block = first; block < end; ++block) {
      const bool is_near = sums[static_cast<size_t>(block - first)] != 0;
      if (runs.empty() || runs.back().is_near != is_near) runs.push_back({block, block, is_near});
      runs.back().end = block + 1;
    }
    return runs;
  }
  /// As they were announced: what is under way must be asked for as it was, although a neighbour may have stored some
  /// of it since.
  Runs runs_to_read(int64_t first, int64_t end) const {
    if (far_->reads_ahead() > 0) {
      const std::lock_guard lock(mutex_);
      if (auto found = announced_.extract({first, end})) return std::move(found.mapped());
    }
    return runs_now(first, end);
  }
  size_t run_bytes(const Run& run) const {
    return static_cast<size_t>(std::min(run.end * kCacheBlock, size()) - run.begin * kCacheBlock);
  }

  template <class Use>
  void for_each_block(const Run& run, std::span<uint8_t> bytes, Use use) const {
    for (int64_t block = run.begin; block < run.end; ++block) {
      const auto at = static_cast<size_t>((block - run.begin) * kCacheBlock);
      use(block, bytes.subspan(at, std::min(bytes.size() - at, static_cast<size_t>(kCacheBlock))));
    }
  }

  /// False if a block is not what was stored. All of the run is then fetched again.
  bool read_near(const Run& run, std::span<uint8_t> to) const {
    if (!near_->read(run.begin * kCacheBlock, to)) return false;
    const std::vector<uint64_t> sums = near_->sums(run.begin, run.end);
    bool all_fit = true;
    for_each_block(run, to, [&](int64_t block, std::span<const uint8_t> bytes) {
      std::atomic<bool>& verified = verified_[static_cast<size_t>(block)];
      if (!cache_->options.verify && verified.load(std::memory_order_relaxed)) return;
      if (CacheFile::fits(sums[static_cast<size_t>(block - run.begin)], bytes)) {
        verified.store(true, std::memory_order_relaxed);
        return;
      }
      near_->drop(block);
      ++cache_->counters.damaged;
      all_fit = false;
    });
    if (all_fit) cache_->counters.hit_bytes += static_cast<int64_t>(to.size());
    return all_fit;
  }

  void fetch(const Run& run, std::span<uint8_t> to) const {
    thread_local std::vector<uint8_t> fetched;
    const auto bytes = far_->read(run.begin * kCacheBlock, std::ssize(to), fetched);
    TRAINOPT_CHECK_EQUAL(bytes.size(), to.size());
    std::copy(bytes.begin(), bytes.end(), to.begin());
    cache_->counters.missed_bytes += std::ssize(to);
    if (!cache_->reserve(std::ssize(to))) return;
    for_each_block(run, to, [&](int64_t block, std::span<const uint8_t> block_bytes) {
      if (cache_->is_off.load(std::memory_order_relaxed)) return;
      if (const int error = near_->store(block, block_bytes); error != 0)
        cache_->turn_off(std::generic_category().message(error));
    });
  }

  std::unique_ptr<const DataFile> far_;
  std::unique_ptr<CacheFile> near_;
  std::shared_ptr<DiskCache::State> cache_;
  std::unique_ptr<std::atomic<bool>[]> verified_;  ///< blocks that this file has compared
  mutable std::mutex mutex_;
  mutable std::map<std::pair<int64_t, int64_t>, Runs> announced_;
};

}  // namespace

DiskCache::DiskCache(const DiskCacheOptions& options) : state_(std::make_shared<State>(options)) {
  if (options.size < kCacheBlock)
    throw UserError(fmt::format("data.cache.size must be at least {} bytes: {}", kCacheBlock, options.size),
                    ExitCode::data);
  try {
    create_folders(options.folder);
  } catch (const UserError& error) {
    throw UserError(fmt::format("data.cache needs its folder: {}", error.what()), ExitCode::data);
  }
  require_cache_folder(options.folder);
}

DiskCache::~DiskCache() = default;

const CacheCounters& DiskCache::counters() const { return state_->counters; }

std::unique_ptr<const DataFile> DiskCache::through(std::unique_ptr<const DataFile> far) {
  std::string reason;
  auto near = CacheFile::open(state_->options.folder, *far, reason);
  if (!near) {
    state_->turn_off(reason);
    return far;
  }
  return std::make_unique<CachedFile>(std::move(far), std::move(near), state_);
}

}  // namespace trainopt
