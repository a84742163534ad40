#include "base/files/file_calls.h"

#include "base/files/held_folder.h"
#include "base/progress.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

namespace trainopt {
namespace {

constexpr size_t kMaxBytesPerCall = size_t{1} << 30;  // Linux moves at most 2 GiB per call

std::atomic<FileFaults*> installed_faults{nullptr};

/// Returns `call(n)` for an n of at most `bytes`, retried after a signal. Returns -1 with errno set if the call fails
/// or a test makes it fail.
template <class Call>
auto attempt(FileCall kind, const std::filesystem::path& path, size_t bytes, const Call& call)
    -> decltype(call(bytes)) {
  while (true) {
    size_t allowed = std::min(bytes, kMaxBytesPerCall);
    FileFaults* faults = installed_faults.load(std::memory_order_acquire);
    const int injected = faults ? faults->before(kind, path, allowed) : 0;
    if (injected != 0) errno = injected;
    const auto result = injected != 0 ? -1 : call(allowed);
    note_progress();
    if (result != -1 || errno != EINTR) return result;
  }
}

template <class Call>
auto attempt(FileCall kind, const std::filesystem::path& path, const Call& call) -> decltype(call()) {
  return attempt(kind, path, 0, [&](size_t) { return call(); });
}

int open_path(const std::filesystem::path& path, int flags) {
  const HeldPlace place(path);
  return attempt(FileCall::open, path,
                 [&] { return ::openat(place.folder, place.name.c_str(), flags | O_CLOEXEC, 0644); });
}

/// Moves `bytes` with repeated `call(done, bytes)`; stops early only if a call returns 0. Returns -1 with errno set if
/// one fails. `done` is correct in any case.
template <class Call>
int move_all(FileCall kind, const std::filesystem::path& path, size_t bytes, size_t& done, const Call& call) {
  while (done < bytes) {
    const ssize_t moved = attempt(kind, path, bytes - done, [&](size_t allowed) { return call(done, allowed); });
    if (moved < 0) return -1;
    if (moved == 0) break;
    done += static_cast<size_t>(moved);
  }
  return 0;
}

PathKind kind_of_mode(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return PathKind::file;
    case S_IFDIR:
      return PathKind::folder;
    case S_IFLNK:
      return PathKind::link;
    default:
      return PathKind::other;
  }
}

}  // namespace

FileError::FileError(const std::string& what, const std::filesystem::path& path, int number, ExitCode code)
    : UserError(fmt::format("cannot {} {}: {}", what, path.string(),
                            number == ELOOP ? "it is a symbolic link or in a loop of them" : std::strerror(number)),
                code),
      number_(number) {}

ScopedFileFaults::ScopedFileFaults(FileFaults& faults) { installed_faults.store(&faults, std::memory_order_release); }
ScopedFileFaults::~ScopedFileFaults() { installed_faults.store(nullptr, std::memory_order_release); }

File File::open(const std::filesystem::path& path, ExitCode code) {
  return File(path, O_RDONLY | O_NONBLOCK, code, "read");
}
File File::open_stream(const std::filesystem::path& path, ExitCode code) { return File(path, O_RDONLY, code, "read"); }
File File::create(const std::filesystem::path& path) {
  return File(path, O_WRONLY | O_CREAT | O_EXCL, ExitCode::storage, "write");
}
File File::append_to(const std::filesystem::path& path) {
  return File(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, ExitCode::storage, "write");
}

File::File(const std::filesystem::path& path, int flags, ExitCode code, const char* what)
    : path_(path), fd_(open_path(path, flags)), code_(code), what_(what) {
  if (fd_ < 0) fail(errno);
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      code_(other.code_),
      what_(other.what_),
      appended_(other.appended_),
      reserved_(other.reserved_) {}

void File::fail(int error) const { throw FileError(what_, path_, error, code_); }

int64_t File::size() const {
  struct stat status {};
  if (attempt(FileCall::status, path_, [&] { return ::fstat(fd_, &status); }) != 0) fail(errno);
  if (S_ISDIR(status.st_mode)) fail(EISDIR);
  return S_ISREG(status.st_mode) ? status.st_size : -1;
}

size_t File::read(void* to, size_t bytes) {
  size_t done = 0;
  const auto read = [&](size_t from, size_t allowed) { return ::read(fd_, static_cast<char*>(to) + from, allowed); };
  if (move_all(FileCall::read, path_, bytes, done, read) != 0) fail(errno);
  return done;
}

size_t File::read_at(int64_t offset, void* to, size_t bytes) const {
  size_t done = 0;
  const auto read = [&](size_t from, size_t allowed) {
    return ::pread(fd_, static_cast<char*>(to) + from, allowed, static_cast<off_t>(offset) + static_cast<off_t>(from));
  };
  if (move_all(FileCall::read, path_, bytes, done, read) != 0) fail(errno);
  return done;
}

void File::append(const void* from, size_t bytes) {
  size_t done = 0;
  const auto write = [&](size_t at, size_t allowed) {
    return ::write(fd_, static_cast<const char*>(from) + at, allowed);
  };
  const int error = move_all(FileCall::write, path_, bytes, done, write) != 0 ? errno : done < bytes ? ENOSPC : 0;
  appended_ += static_cast<int64_t>(done);
  if (error != 0) fail(error);
}

void File::reserve(int64_t bytes) {
  if (bytes <= 0) return;
  // The file size stays what was written, so that a truncated file never looks complete.
  const auto allocate = [&] { return ::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, bytes); };
  if (attempt(FileCall::reserve, path_, allocate) == 0)
    reserved_ = bytes;
  else if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
    fail(errno);
}

void File::truncate(int64_t bytes) {
  if (attempt(FileCall::truncate, path_, [&] { return ::ftruncate(fd_, bytes); }) != 0) fail(errno);
}

void File::release_reserved_space() {
  if (reserved_ > appended_) truncate(size());
  reserved_ = 0;
}

bool File::lock() {
  if (attempt(FileCall::lock, path_, [&] { return ::flock(fd_, LOCK_EX | LOCK_NB); }) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  throw FileError("lock", path_, errno, code_);
}

void File::sync() {
  release_reserved_space();
  if (attempt(FileCall::sync, path_, [&] { return ::fsync(fd_); }) != 0) fail(errno);
}

void File::drop_from_page_cache() {
  if (const int error = attempt(FileCall::sync, path_,
                                [&] {
                                  errno = ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
                                  return errno == 0 ? 0 : -1;
                                });
      error != 0)
    fail(errno);
}

void File::close() {
  release_reserved_space();
  int error = attempt(FileCall::close, path_, [] { return 0; }) != 0 ? errno : 0;
  // Not retried after a signal: Linux has already released the descriptor.
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) error = errno;
  if (error != 0) fail(error);
}

PathStatus path_status(const std::filesystem::path& path, ExitCode code) {
  const HeldPlace place(path);
  struct stat status {};
  const auto look = [&] { return ::fstatat(place.folder, place.name.c_str(), &status, AT_SYMLINK_NOFOLLOW); };
  if (attempt(FileCall::status, path, look) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return {PathKind::absent, 0};
    throw FileError("read", path, errno, code);
  }
  return {kind_of_mode(status.st_mode), S_ISREG(status.st_mode) ? int64_t{status.st_size} : 0};
}

PathKind kind_of(const std::filesystem::path& path) noexcept {
  const HeldPlace place(path);
  struct stat status {};
  const bool found = ::fstatat(place.folder, place.name.c_str(), &status, 0) == 0;
  note_progress();
  return found ? kind_of_mode(status.st_mode) : PathKind::absent;
}

std::filesystem::path link_target(const std::filesystem::path& link, ExitCode code) {
  const HeldPlace place(link);
  std::string target(4096, '\0');  // PATH_MAX
  const auto read = [&] { return ::readlinkat(place.folder, place.name.c_str(), target.data(), target.size()); };
  const ssize_t length = attempt(FileCall::status, link, read);
  if (length < 0 && (errno == EINVAL || errno == ENOENT || errno == ENOTDIR)) return {};
  if (length < 0) throw FileError("read", link, errno, code);
  target.resize(static_cast<size_t>(length));
  return target;
}

std::vector<std::string> names_in_folder(const std::filesystem::path& folder, ExitCode code) {
  const HeldPlace place(folder);
  const auto open = [&] { return ::openat(place.folder, place.name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); };
  const int fd = attempt(FileCall::list, folder, open);
  if (fd < 0) throw FileError("list", folder, errno, code);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd), ::closedir);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    note_progress();
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  if (errno != 0) throw FileError("list", folder, errno, code);
  std::sort(names.begin(), names.end());
  return names;
}

void sync_folder(const std::filesystem::path& folder) {
  const int fd = open_path(folder, O_RDONLY | O_DIRECTORY);
  if (fd < 0) throw FileError("write", folder, errno, ExitCode::storage);
  const int error = attempt(FileCall::sync, folder, [&] { return ::fsync(fd); }) != 0 ? errno : 0;
  ::close(fd);
  if (error != 0 && error != EINVAL)
    throw FileError("write", folder, error, ExitCode::storage);  // EINVAL: folders cannot be synced here
}

void make_folder(const std::filesystem::path& folder) {
  const HeldPlace place(folder);
  const auto make = [&] { return ::mkdirat(place.folder, place.name.c_str(), 0755); };
  if (attempt(FileCall::make_folder, folder, make) != 0)
    throw FileError("create the folder", folder, errno, ExitCode::storage);
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  const HeldPlace old_place(from), new_place(to);
  const auto rename = [&] {
    return ::renameat(old_place.folder, old_place.name.c_str(), new_place.folder, new_place.name.c_str());
  };
  if (attempt(FileCall::rename, to, rename) != 0)
    throw FileError(fmt::format("rename {} to", from.string()), to, errno, ExitCode::storage);
}

void unlink_quietly(const std::filesystem::path& path) noexcept {
  const HeldPlace place(path);
  ::unlinkat(place.folder, place.name.c_str(), 0);
}

bool exchange_paths(const std::filesystem::path& one, const std::filesystem::path& other) {
  const HeldPlace left(one), right(other);
  const auto exchange = [&] {
    return ::renameat2(left.folder, left.name.c_str(), right.folder, right.name.c_str(), RENAME_EXCHANGE);
  };
  if (attempt(FileCall::exchange, other, exchange) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  throw FileError(fmt::format("rename {} to", one.string()), other, errno, ExitCode::storage);
}

void point_link(const std::filesystem::path& link, const std::filesystem::path& target) {
  const auto temporary = link.parent_path() / fmt::format(".{}.{}.tmp", link.filename().string(), ::getpid());
  remove_file(temporary);
  const HeldPlace place(temporary);
  const auto make = [&] { return ::symlinkat(target.c_str(), place.folder, place.name.c_str()); };
  if (attempt(FileCall::link, temporary, make) != 0) throw FileError("create the link", link, errno, ExitCode::storage);
  try {
    rename_path(temporary, link);
  } catch (const FileError&) {
    unlink_quietly(temporary);
    throw;
  }
}

void remove_file(const std::filesystem::path& path) {
  const HeldPlace place(path);
  const auto remove = [&] { return ::unlinkat(place.folder, place.name.c_str(), 0); };
  if (attempt(FileCall::remove, path, remove) != 0 && errno != ENOENT)
    throw FileError("remove", path, errno, ExitCode::storage);
}

void remove_folder(const std::filesystem::path& folder) {
  const PathKind kind = path_status(folder, ExitCode::storage).kind;
  if (kind == PathKind::absent) return;
  if (kind != PathKind::folder) return remove_file(folder);
  for (const auto& name : names_in_folder(folder, ExitCode::storage)) remove_folder(folder / name);
  const HeldPlace place(folder);
  const auto remove = [&] { return ::unlinkat(place.folder, place.name.c_str(), AT_REMOVEDIR); };
  if (attempt(FileCall::remove, folder, remove) != 0 && errno != ENOENT)
    throw FileError("remove the folder", folder, errno, ExitCode::storage);
}

int64_t free_bytes(const std::filesystem::path& folder) {
  const int fd = open_path(folder, O_RDONLY | O_DIRECTORY);
  struct statvfs status {};
  const int error =
      fd < 0 || attempt(FileCall::status, folder, [&] { return ::fstatvfs(fd, &status); }) != 0 ? errno : 0;
  if (fd >= 0) ::close(fd);
  if (error != 0) throw FileError("get the free space of", folder, error, ExitCode::storage);
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

}  // namespace trainopt
