#include "app/folder_watch.h"

#include "app/signals.h"
#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"

namespace trainopt {
namespace {
constexpr double kLookSeconds = 1;
}

void FolderWatch::look() {
  if (seconds_since(looked_at_) < kLookSeconds) return;
  looked_at_ = Clock::now();
  const auto name = folder_.name();
  if (name == HeldFolder::Name::no_folder)
    throw UserError(fmt::format("the run directory was removed while the run wrote to it: {}", run_dir_.string()),
                    ExitCode::storage);
  if (name == HeldFolder::Name::gone && !said_) {
    said_ = true;
    log_warning("the run directory {} was renamed; the run goes on in {}", run_dir_.string(), folder_.now().string());
  }
  if (name == HeldFolder::Name::taken && stop_signal() == 0) {
    log_warning("{} is another folder now, so the run ends; it saves in its own, which is {}", run_dir_.string(),
                folder_.now().string());
    request_stop(kFolderTaken);
  }
}

std::optional<RunEnd> FolderWatch::corrected(const RunEnd& end) const {
  if (folder_.name() != HeldFolder::Name::taken) return std::nullopt;
  return RunEnd{end.status,
                fmt::format("{}; {} is another folder now, and this run's is {}", end.reason, run_dir_.string(),
                            folder_.now().string()),
                static_cast<int>(ExitCode::storage)};
}

}  // namespace trainopt
