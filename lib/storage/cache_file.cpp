#include "storage/cache_file.h"

#include "base/error.h"
#include "storage/disk_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
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

/// Makes the file without a name, and gives it its name when it is complete. So nothing is left by a process that was
/// killed.
bool make_cache_file(const fs::path& path, const DataFile& far) {
  const int fd = ::open(path.parent_path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (fd < 0) return false;
  const CacheHeader header = header_for(far);
  const std::string open_file = fmt::format("/proc/self/fd/{}", fd);
  const bool made =
      write_all(fd, &header, sizeof(header), 0) && ::ftruncate(fd, data_begin(far.size()) + far.size()) == 0 &&
      (::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0 || errno == EEXIST);
  const int error = errno;
  ::close(fd);
  errno = error;
  return made;
}

bool is_still_named(int fd, const fs::path& path) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

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
    if (file->map() && file->is_valid(far)) {
      ::futimens(fd, nullptr);  // now: evict() begins with those that were opened longest ago
      return file;
    }
    ::unlink(path.c_str());
  }
  reason = std::generic_category().message(errno);
  return nullptr;
}

CacheFile::~CacheFile() {
  if (!mapped_.empty()) ::munmap(const_cast<uint8_t*>(mapped_.data()), mapped_.size());
  ::close(fd_);
}

bool CacheFile::map() {
  struct stat status {};
  data_at_ = data_begin(size_);
  if (::fstat(fd_, &status) != 0 || status.st_size != data_at_ + size_) return false;
  void* const mapped = ::mmap(nullptr, static_cast<size_t>(data_at_), PROT_READ, MAP_SHARED, fd_, 0);
  if (mapped == MAP_FAILED) return false;
  mapped_ = {static_cast<const uint8_t*>(mapped), static_cast<size_t>(data_at_)};
  sums_ = {reinterpret_cast<const uint64_t*>(mapped_.data() + kHeaderBytes), static_cast<size_t>(blocks_of(size_))};
  return true;
}

bool CacheFile::is_valid(const DataFile& far) const {
  const CacheHeader wanted = header_for(far);
  return std::memcmp(mapped_.data(), &wanted, sizeof(wanted)) == 0;
}

uint64_t CacheFile::load(int64_t block) const {
  const volatile uint64_t& sum = sums_[static_cast<size_t>(block)];  // other processes change it
  return sum;
}

bool CacheFile::read(int64_t offset, std::span<uint8_t> to) const {
  while (!to.empty()) {
    const ssize_t bytes = ::pread(fd_, to.data(), to.size(), data_at_ + offset);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return false;
    offset += bytes;
    to = to.subspan(static_cast<size_t>(bytes));
  }
  return true;
}

bool CacheFile::fits(int64_t block, std::span<const uint8_t> bytes) const { return load(block) == sum_of_block(bytes); }

/// By a call, because a write to mapped memory ends the process if a full disk cannot take it: file systems that copy
/// on write need room for every change.
bool CacheFile::write_sum(int64_t block, uint64_t sum) {
  return write_all(fd_, &sum, sizeof(sum), kHeaderBytes + block * static_cast<int64_t>(sizeof(sum)));
}

void CacheFile::drop(int64_t block) { write_sum(block, 0); }

int CacheFile::store(int64_t block, std::span<const uint8_t> bytes) {
  if (!write_all(fd_, bytes.data(), bytes.size(), data_at_ + block * kCacheBlock)) return errno;
  return write_sum(block, sum_of_block(bytes)) ? 0 : errno;
}

bool CacheFile::evict(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool evicted = ::flock(fd, LOCK_EX | LOCK_NB) == 0 && is_still_named(fd, path) && ::unlink(path.c_str()) == 0;
  ::close(fd);
  return evicted;
}

}  // namespace trainopt
