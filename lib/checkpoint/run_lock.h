// One run a run directory: two programs that write the same files would lose both.
#pragma once

#include "base/file_calls.h"

#include <filesystem>

namespace trainopt {

/// Holds `<run_dir>/.lock` until it ends; the kernel lets go of it when the process dies, however it dies.
class RunLock {
 public:
  /// Throws UserError: recipe, naming host and process that hold it; storage if the file cannot be written.
  explicit RunLock(const std::filesystem::path& run_dir);

 private:
  File file_;
};

}  // namespace trainopt
