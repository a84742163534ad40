#include "base/mapped_file.h"

#include "base/file_calls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace trainopt {

MappedFile::MappedFile(const std::filesystem::path& path, ExitCode code)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) throw FileError("read", path, errno, code);
  try {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) throw FileError("read", path, errno, code);
    if (!S_ISREG(status.st_mode)) throw UserError(fmt::format("not a regular file: {}", path.string()), code);
    changed_ns_ = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
    if (status.st_size == 0) return;  // cannot be mapped
    const auto bytes = static_cast<size_t>(status.st_size);
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd_, 0);
    if (mapped == MAP_FAILED) throw FileError("map", path, errno, code);
    bytes_ = {static_cast<const uint8_t*>(mapped), bytes};
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
  ::close(fd_);
}

std::optional<int64_t> MappedFile::shorter_size() const {
  struct stat status {};
  const int64_t now = ::fstat(fd_, &status) == 0 ? int64_t{status.st_size} : 0;
  return now < size() ? std::optional(now) : std::nullopt;
}

}  // namespace trainopt
