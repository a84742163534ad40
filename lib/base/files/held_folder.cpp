#include "base/files/held_folder.h"

#include "base/files/file_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace trainopt {
namespace {

// Global, because the names of the file system are global to the process too.
std::shared_mutex held_mutex;
std::vector<const HeldFolder*> all_held;

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

bool is_same(const struct stat& left, const struct stat& right) {
  return left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

}  // namespace

std::pair<const HeldFolder*, std::string> HeldFolder::find(const std::string& path) {
  for (const HeldFolder* each : all_held) {
    const size_t length = each->path_.size();
    if (!path.starts_with(each->path_) || (path.size() > length && path[length] != '/')) continue;  // "run-2", "run"
    const size_t rest = path.find_first_not_of('/', length);
    return {each, rest == std::string::npos ? "." : path.substr(rest)};
  }
  return {nullptr, path};
}

HeldFolder::HeldFolder(const std::filesystem::path& folder)
    : path_(without_slash(folder.string())), fd_(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) throw FileError("open the folder", folder, errno, ExitCode::storage);
  const std::lock_guard lock(held_mutex);
  all_held.push_back(this);
}

HeldFolder::~HeldFolder() {
  {
    const std::lock_guard lock(held_mutex);
    std::erase(all_held, this);
  }
  ::close(fd_);
}

HeldFolder::Name HeldFolder::name() const {
  struct stat mine {
  }, named{};
  if (::fstat(fd_, &mine) != 0) return Name::leads_here;
  const bool is_free = ::stat(path_.c_str(), &named) != 0;
  if (is_free && errno != ENOENT && errno != ENOTDIR) return Name::leads_here;
  if (!is_free && is_same(mine, named)) return Name::leads_here;
  if (mine.st_nlink == 0) return Name::no_folder;
  return is_free ? Name::gone : Name::taken;
}

std::filesystem::path HeldFolder::now() const {
  std::error_code error;
  const auto path = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd_), error);
  return error ? std::filesystem::path(path_) : path;
}

HeldPlace::HeldPlace(const std::filesystem::path& path) : folder(AT_FDCWD), name(path.string()) {
  const std::shared_lock lock(held_mutex);
  if (const auto [held, rest] = HeldFolder::find(name); held) {
    folder = held->fd_;
    name = rest;
  }
}

std::filesystem::path path_for_others(const std::filesystem::path& path) {
  const std::shared_lock lock(held_mutex);
  const auto [held, rest] = HeldFolder::find(path.string());
  return held && held->name() != HeldFolder::Name::leads_here ? held->now() / rest : path;
}

}  // namespace trainopt
