#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace trainopt {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, ExitCode code, int error = errno) {
  throw UserError(fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(error)), code);
}

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

}  // namespace

std::string read_file(const std::filesystem::path& path, ExitCode code, int64_t limit) {
  const Descriptor file(path, O_RDONLY);
  if (file.get() < 0) fail("read", path, code);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("read", path, code);
  if (S_ISDIR(status.st_mode)) fail("read", path, code, EISDIR);
  if (status.st_size > limit) throw UserError(fmt::format("{} is too large: {} bytes, at most {}", path.string(), status.st_size, limit), code);
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t have = 0;
  while (true) {
    if (have == bytes.size()) bytes.resize(have + (S_ISREG(status.st_mode) ? 1 : 65536));   // one more, to see the end
    const ssize_t got = ::read(file.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path, code);
    if (got == 0) break;
    have += static_cast<size_t>(got);
    if (static_cast<int64_t>(have) > limit) throw UserError(fmt::format("{} is too large: more than {} bytes", path.string(), limit), code);
  }
  bytes.resize(have);
  return bytes;
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  auto temporary = path;
  temporary += fmt::format(".{}.tmp", ::getpid());
  Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.get() < 0) fail("write", path, ExitCode::storage);
  const auto give_up = [&] {
    const int error = errno;
    ::unlink(temporary.c_str());
    fail("write", path, ExitCode::storage, error);
  };
  while (!bytes.empty()) {
    const ssize_t put = ::write(file.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) give_up();
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  if (::fsync(file.get()) != 0) give_up();
  if (file.close() != 0) give_up();
  if (::rename(temporary.c_str(), path.c_str()) != 0) give_up();
}

void create_folders(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw UserError(fmt::format("cannot create the folder {}: {}", path.string(), error.message()), ExitCode::storage);
}

}  // namespace trainopt
