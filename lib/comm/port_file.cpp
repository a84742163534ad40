#include "comm/port_file.h"

#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

namespace trainopt {
namespace fs = std::filesystem;
namespace {

/// Throws if another user could read or replace files in the folder.
void require_own(const fs::path& folder) {
  struct stat status {};
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw FileError("create the folder", folder, errno, ExitCode::storage);
  if (::lstat(folder.c_str(), &status) != 0) throw FileError("read", folder, errno, ExitCode::storage);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)
    throw UserError(
        fmt::format("the ranks cannot meet, because {} is not a folder that only this user may open; remove "
                    "it or set TMPDIR",
                    folder.string()),
        ExitCode::storage);
}

}  // namespace

PortFile::PortFile(const fs::path& folder, const std::string& job) {
  if (kind_of(folder) != PathKind::folder)
    throw UserError(fmt::format("the ranks cannot meet, because TMPDIR is not a folder: {}", folder.string()),
                    ExitCode::storage);
  const fs::path own = folder / fmt::format("trainopt-{}", ::geteuid());
  require_own(own);
  path_ = own / fmt::format("port-{}", job);
}

void PortFile::write(const Contents& contents) const {
  const auto text = fmt::format("{} {}\n", contents.port, contents.key);
  replace_file(path_, [&](File& file) {
    ::chmod(file.path().c_str(), 0600);  // before it has contents
    file.append(text.data(), text.size());
  });
}

std::optional<PortFile::Contents> PortFile::read() const {
  struct stat status {};
  if (::lstat(path_.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid())
    return std::nullopt;
  Contents contents;
  try {
    constexpr int64_t kMaxBytes = 4096;
    std::istringstream(read_file(path_, ExitCode::peer, kMaxBytes)) >> contents.port >> contents.key;
  } catch (const UserError&) {  // named recovery: rank 0 may be replacing the file, and is asked for again
    return std::nullopt;
  }
  return contents.port > 0 && contents.port < 65536 ? std::optional(contents) : std::nullopt;
}

}  // namespace trainopt
