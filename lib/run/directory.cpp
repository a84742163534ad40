#include "run/directory.h"

#include "base/error.h"
#include "base/files/files.h"
#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/store.h"
#include "run/signals.h"

#include <algorithm>
#include <ctime>

namespace trainopt {

namespace fs = std::filesystem;
namespace {

std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

/// Throws if the path or one of its parents is a file.
void refuse_file(const fs::path& folder) {
  std::error_code error;
  for (fs::path path = folder; !path.empty(); path = path.parent_path()) {
    if (fs::exists(path, error) && !fs::is_directory(path, error))
      throw UserError(fmt::format("the run directory cannot be {}: {} is not a folder", folder.string(), path.string()),
                      ExitCode::storage);
    if (path == path.parent_path()) break;
  }
}

/// Whether the folder is empty or missing, apart from a lock, a log and temporary files of a run that never started.
bool is_unused(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return true;
  if (!fs::is_directory(folder, error)) return false;
  const fs::directory_iterator entries(folder, error);
  return !error && std::all_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
    return entry.path().filename() == ".lock" || entry.path().filename() == "run.log" ||
           entry.path().extension() == ".tmp";
  });
}

/// Until there is a checkpoint, a restart begins as the first attempt did.
std::string resume_of(const Recipe& recipe, bool restarted) {
  const std::string& resume = recipe.checkpoint.resume;
  const bool goes_on = restarted && (resume == "none" || !list_checkpoints(checkpoints_in(*recipe.run_dir)).empty());
  return goes_on ? "auto" : resume;
}

}  // namespace

bool is_checkpoint_of(const fs::path& run_dir, const fs::path& checkpoint) {
  // Folders are compared, not their names: `checkpoints` may be a link to another disk or be mounted twice.
  std::error_code error;
  return fs::equivalent(fs::canonical(checkpoint, error).parent_path(), checkpoints_in(run_dir), error);
}

void require_unused(const fs::path& folder) {
  if (!is_unused(folder))
    throw UserError(
        fmt::format("the run directory exists and is not empty; choose another or remove it; trainopt run also "
                    "resumes in it, with checkpoint.resume=auto: {}",
                    folder.string()));
}

RunFolder choose_run_directory(const Recipe& recipe, bool restarted) {
  std::error_code error;
  RunFolder folder;
  if (recipe.run_dir) refuse_file(*recipe.run_dir);
  const std::string resume = resume_of(recipe, restarted);
  folder.resumes = resume != "none";
  if (folder.resumes && resume != "auto") folder.from = resume;
  if (folder.from && !fs::exists(*folder.from, error))
    throw UserError(fmt::format("checkpoint.resume: no such checkpoint: {}", folder.from->string()),
                    ExitCode::checkpoint);
  const bool from_own = folder.from && recipe.run_dir && is_checkpoint_of(*recipe.run_dir, *folder.from);
  const bool in_place = restarted || from_own || (folder.resumes && !folder.from);
  if (!in_place || is_unused(*recipe.run_dir)) {
    folder.path = make_run_directory(recipe);
    return folder;
  }
  folder.path = *recipe.run_dir;
  if (!fs::exists(folder.path / "recipe.yaml", error))
    throw UserError(
        fmt::format("checkpoint.resume: {}: run_dir is not a run directory, because it has no recipe.yaml: {}", resume,
                    folder.path.string()));
  folder.continues = true;
  folder.own = !folder.from || from_own;
  return folder;
}

fs::path make_run_directory(const Recipe& recipe) {
  std::error_code error;
  if (recipe.run_dir) {
    require_unused(*recipe.run_dir);
    create_folders(*recipe.run_dir);
    return *recipe.run_dir;
  }
  create_folders(recipe.output_dir);
  const std::string base = fmt::format("{}-{}", recipe.name, local_time());
  for (int number = 1;; ++number) {
    const fs::path folder = fs::path(recipe.output_dir) / (number == 1 ? base : fmt::format("{}-{}", base, number));
    // Creating the folder claims it: two runs started in the same second get different names.
    if (fs::create_directory(folder, error)) return folder;
    if (error)
      throw UserError(fmt::format("cannot create the folder {}: {}", folder.string(), error.message()),
                      ExitCode::storage);
  }
}

namespace {
constexpr double kNameLookSeconds = 1;
}

void FolderWatch::look() {
  if (seconds_since(looked_at_) < kNameLookSeconds) return;
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
