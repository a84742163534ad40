#include "storage/cache_file.h"

#include "base/error.h"
#include "storage/disk_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHeaderBytes = 4096;

struct CacheHeader {
  char magic[8] = {'T', 'R', 'N', 'O', 'C', 'A', 'C', 'H'};
  uint32_t version = 1, block = 0;             ///< kCacheBlock
  int64_t size = 0;                            ///< the remote file's size
  uint64_t identity = 0;                       ///< hash of name, version and size
  char name[2048] = {}, of_version[256] = {};  ///< for people; cut if they are longer
  uint64_t checksum = 0;                       ///< XXH3 of the bytes before this
};
static_assert(sizeof(CacheHeader) <= kHeaderBytes);

int64_t blocks_of(int64_t size) { return (size + kCacheBlock - 1) / kCacheBlock; }
int64_t data_begin(int64_t size) {
  const int64_t sums = blocks_of(size) * static_cast<int64_t>(sizeof(uint64_t));
  return kHeaderBytes + (sums + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes;
}

uint64_t checksum_of_header(const CacheHeader& header) { return XXH3_64bits(&header, offsetof(CacheHeader, checksum)); }

/// Never 0, which means that there is no block.
uint64_t sum_of_block(std::span<const uint8_t> bytes) {
  return std::max<uint64_t>(1, XXH3_64bits(bytes.data(), bytes.size()));
}

CacheHeader header_for(const DataFile& far) {
  CacheHeader header;
  header.block = static_cast<uint32_t>(kCacheBlock);
  header.size = far.size();
  header.identity = cache_identity(far);
  far.name().copy(header.name, sizeof(header.name) - 1);
  far.version().copy(header.of_version, sizeof(header.of_version) - 1);
  header.checksum = checksum_of_header(header);
  return header;
}

bool write_all(int fd, const void* from, size_t bytes, int64_t offset) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(fd, at, bytes, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      if (written == 0) errno = EIO;
      return false;
    }
    at += written, offset += written, bytes -= static_cast<size_t>(written);
  }
  return true;
}

/// Makes the file as a draft, and gives it its name when it is complete. The lock keeps evict() from the draft of a
/// living process. O_TMPFILE would need no draft, but containers' root folders (overlayfs before Linux 6.10) lack it.
/// True also if another process was faster, or took the draft for a killed process's before it was locked.
bool make_cache_file(const fs::path& path, const DataFile& far) {
  static std::atomic<int64_t> drafts{0};
  const fs::path draft = fmt::format("{}.{}.{}", path.string(), ::getpid(), ++drafts);
  const int fd = ::open(draft.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
  if (fd < 0) return errno == EEXIST;
  const CacheHeader header = header_for(far);
  const bool made = ::flock(fd, LOCK_SH) == 0 && write_all(fd, &header, sizeof(header), 0) &&
                    ::ftruncate(fd, data_begin(far.size()) + far.size()) == 0 &&
                    (::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST || errno == ENOENT);
  const int error = errno;
  ::unlink(draft.c_str());
  ::close(fd);
  errno = error;
  return made;
}

bool read_all(int fd, void* to, size_t bytes, int64_t offset) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, at, bytes, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got, offset += got, bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool is_still_named(int fd, const fs::path& path) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

int64_t place_of_sum(int64_t block) { return kHeaderBytes + block * static_cast<int64_t>(sizeof(uint64_t)); }

}  // namespace

uint64_t cache_identity(const DataFile& far) {
  const std::string text = fmt::format("{}\n{}\n{}", far.name(), far.version(), far.size());
  return XXH3_64bits(text.data(), text.size());
}

std::unique_ptr<CacheFile> CacheFile::open(const fs::path& folder, const DataFile& far, std::string& reason) {
  const fs::path path = folder / fmt::format("{:016x}{}", cache_identity(far), kCacheEnding);
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) {
      if (errno == ENOENT && make_cache_file(path, far)) continue;
      break;
    }
    std::unique_ptr<CacheFile> file(new CacheFile(fd, far.size()));
    if (::flock(fd, LOCK_SH) != 0) break;
    if (!is_still_named(fd, path)) continue;  // evicted between open() and flock()
    if (file->is_valid(far)) {
      ::futimens(fd, nullptr);  // now: evict() begins with those that were opened longest ago
      return file;
    }
    ::unlink(path.c_str());
  }
  reason = std::generic_category().message(errno);
  return nullptr;
}

CacheFile::CacheFile(int fd, int64_t size) : fd_(fd), size_(size), data_at_(data_begin(size)) {}
CacheFile::~CacheFile() { ::close(fd_); }

int64_t CacheFile::blocks() const { return blocks_of(size_); }

bool CacheFile::is_valid(const DataFile& far) const {
  struct stat status {};
  CacheHeader found;
  const CacheHeader wanted = header_for(far);
  return ::fstat(fd_, &status) == 0 && status.st_size == data_at_ + size_ && read_all(fd_, &found, sizeof(found), 0) &&
         std::memcmp(&found, &wanted, sizeof(wanted)) == 0;
}

std::vector<uint64_t> CacheFile::sums(int64_t begin, int64_t end) const {
  std::vector<uint64_t> sums(static_cast<size_t>(end - begin));
  if (!read_all(fd_, sums.data(), sums.size() * sizeof(uint64_t), place_of_sum(begin)))
    std::fill(sums.begin(), sums.end(), 0);
  return sums;
}

bool CacheFile::read(int64_t offset, std::span<uint8_t> to) const {
  return read_all(fd_, to.data(), to.size(), data_at_ + offset);
}

bool CacheFile::fits(uint64_t sum, std::span<const uint8_t> bytes) { return sum == sum_of_block(bytes); }

bool CacheFile::write_sum(int64_t block, uint64_t sum) {
  return write_all(fd_, &sum, sizeof(sum), place_of_sum(block));
}

void CacheFile::drop(int64_t block) { write_sum(block, 0); }

int CacheFile::store(int64_t block, std::span<const uint8_t> bytes) {
  if (!write_all(fd_, bytes.data(), bytes.size(), data_at_ + block * kCacheBlock)) return errno;
  return write_sum(block, sum_of_block(bytes)) ? 0 : errno;
}

bool is_cache_name(std::string_view name) {
  const std::string_view identity = name.substr(0, 16);
  if (name.size() < 16 || identity.find_first_not_of("0123456789abcdef") != std::string_view::npos) return false;
  const std::string_view rest = name.substr(16);
  return rest.starts_with(kCacheEnding) &&
         rest.find_first_not_of(".0123456789", kCacheEnding.size()) == std::string_view::npos;
}
bool is_draft_name(std::string_view name) { return is_cache_name(name) && !name.ends_with(kCacheEnding); }

bool CacheFile::evict(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool evicted = ::flock(fd, LOCK_EX | LOCK_NB) == 0 && is_still_named(fd, path) && ::unlink(path.c_str()) == 0;
  ::close(fd);
  return evicted;
}

}  // namespace trainopt
