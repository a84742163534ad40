#include "checkpoint/run_lock.h"

#include "base/files/files.h"
#include "base/host_name.h"
#include "base/log.h"

#include <unistd.h>

#include <cerrno>
#include <sstream>

namespace trainopt {
namespace {

constexpr int64_t kMaxLockFileBytes = 4096;

/// False if the file system does not support locks.
bool take(File& file, const std::filesystem::path& run_dir) {
  try {
    if (file.lock()) return true;
  } catch (const FileError& error) {
    if (error.number() != ENOSYS && error.number() != EOPNOTSUPP && error.number() != ENOLCK) throw;
    log_warning("cannot guard {} against a second run: {}", run_dir.string(), error.what());
    return false;
  }
  std::string host = "?", process = "?";
  std::istringstream(read_file(file.path(), ExitCode::storage, kMaxLockFileBytes)) >> host >> process;
  throw UserError(
      fmt::format("another run writes to {}: process {} on {}; wait until it ends, or choose another run directory",
                  run_dir.string(), process, host),
      ExitCode::recipe);
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& run_dir, const std::string& job, bool again)
    : file_(File::append_to(run_dir / ".lock")) {
  if (!take(file_, run_dir)) return;
  std::string host, process, last_job;
  std::istringstream(read_file(file_.path(), ExitCode::storage, kMaxLockFileBytes)) >> host >> process >> last_job;
  if (again && last_job != job)
    throw UserError(
        fmt::format("{} is not the folder in which this job began, so it does not go on there", run_dir.string()),
        ExitCode::storage);
  const std::string holder = fmt::format("{} {}{}\n", host_name(), ::getpid(), job.empty() ? "" : " " + job);
  file_.truncate(0);
  file_.append(holder.data(), holder.size());
}

bool is_locked(const std::filesystem::path& run_dir) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(run_dir / ".lock", ignored)) return false;
  try {
    return !File::open(run_dir / ".lock", ExitCode::storage).lock();
  } catch (const FileError&) {  // named recovery: not readable, or a file system without locks
    return false;
  }
}

}  // namespace trainopt
