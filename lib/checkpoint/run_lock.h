// One run per run directory: two processes writing the same files would corrupt both runs.
#pragma once

#include "base/files/file_calls.h"

#include <filesystem>
#include <string>

namespace trainopt {

/// Holds `<run_dir>/.lock` until destroyed. The kernel releases the lock when the process dies, however it dies.
class RunLock {
 public:
  /// `job`: a mark of the job, kept in the file; `again`: the last holder must have had the same one. Throws UserError:
  /// `recipe` naming the host and process that hold the lock; `storage` if the file cannot be written, or if the last
  /// holder was another job.
  explicit RunLock(const std::filesystem::path& run_dir, const std::string& job = "", bool again = false);

 private:
  File file_;
};

/// Whether a process on this machine, or on one that shares its locks, holds the lock of this folder. Needs only to
/// read it; takes the lock for a moment if nobody has it. False where that cannot be found out.
bool is_locked(const std::filesystem::path& run_dir);

}  // namespace trainopt
