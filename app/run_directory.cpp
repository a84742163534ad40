#include "app/run_directory.h"

#include "base/files.h"

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

}  // namespace

fs::path make_run_directory(const Recipe& recipe) {
  std::error_code error;
  if (recipe.run_dir) {
    const fs::path exact = *recipe.run_dir;
    if (fs::exists(exact, error) && !(fs::is_directory(exact, error) && fs::is_empty(exact, error)))
      throw UserError(fmt::format("the run directory exists and is not empty; name another one or remove it: {}", exact.string()));
    create_folders(exact);
    return exact;
  }
  create_folders(recipe.output_dir);
  const std::string base = fmt::format("{}-{}", recipe.name, local_time());
  for (int number = 1;; ++number) {
    const fs::path folder = fs::path(recipe.output_dir) / (number == 1 ? base : fmt::format("{}-{}", base, number));
    // Whoever creates it owns it: two runs started in the same second take different names.
    if (fs::create_directory(folder, error)) return folder;
    if (error) throw UserError(fmt::format("cannot create the folder {}: {}", folder.string(), error.message()), ExitCode::storage);
  }
}

}  // namespace trainopt
